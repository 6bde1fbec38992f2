"""Every page of a league in this process: as it is served, and as its loader makes it of SQL now."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import text

from ephemera.patterns.http_cache import PageRef, Settled
from ephemera_services.league import keys
from ephemera_services.league.loaders import RANGES
from tests.defects.service_apps import App

_SEASONAL = (
    keys.SEASON_TABLE,
    keys.SEASON_SCHEDULE,
    keys.SEASON_RESULTS,
    keys.SEASON_STATS,
    keys.SEASON_BRACKET,
)
_OF_MATCH = (keys.META, keys.LIVE, keys.VERSIONS, keys.COMMENTS)


class LeaguePages:
    """The pages of an open league."""

    def __init__(self, app: App) -> None:
        self.app, self.service = app, app.service

    async def sql(self, statement: str) -> list[Any]:
        """Run a statement on the league's database; its rows, if it has any."""
        async with self.service.engine.begin() as sql:
            found = await sql.execute(text(statement))
            return list(found.all()) if found.returns_rows else []

    async def served(self, page: PageRef) -> Any:
        """A page as the next poll gets it."""
        found = await self.service.store[page.resource].page(**page.fields)
        return None if found is None else found.json()

    async def etag(self, page: PageRef) -> bytes | None:
        """The ETag that the next poll gets."""
        found = await self.service.store[page.resource].page(**page.fields)
        return None if found is None else found.etag

    async def computed(self, page: PageRef) -> Any:
        """The same page, computed from SQL now."""
        value = await page.resource.load(self.service.engine, **page.fields)
        return msgspec.json.decode(
            msgspec.json.encode(value.content if isinstance(value, Settled) else value)
        )

    async def all(self, *matches: int) -> dict[str, PageRef]:
        """Every page there is, by its key, of every season, club, range and user, and of these matches."""
        ids = {
            name: [str(row.id) for row in await self.sql(f"SELECT id FROM league.{name} ORDER BY id")]
            for name in ("seasons", "clubs", "users")
        }
        pages = [each.at() for each in keys.RESOURCES if not each.fields]
        pages += [each.at(season=season) for each in _SEASONAL for season in (*ids["seasons"], "all")]
        pages += [each.at(match_id=match) for each in _OF_MATCH for match in map(str, matches)]
        pages += [keys.CLUB.at(id=club) for club in ids["clubs"]]
        pages += [keys.ACTIVE.at(range=each) for each in RANGES]
        pages += [each.at(user_id=user) for each in (keys.MINE, keys.ACHIEVEMENTS) for user in ids["users"]]
        pages.remove(keys.ADMIN_STATS.at())  # row counts, as of the last hour or result
        return {page.key: page for page in pages}

    async def boards(self) -> dict[str, PageRef]:
        """The leaderboards, which are computed after a result, in the background."""
        seasons = [str(row.id) for row in await self.sql("SELECT id FROM league.seasons")]
        pages = [keys.BOARD.at(board=board) for board in ("season", "week")]
        pages += [keys.SEASON_BOARD.at(board="season", season=each) for each in (*seasons, "all")]
        return {page.key: page for page in pages}
