"""The pages that show a row: what must change when the row does.

Pages for everyone are replaced together. The pages of users who predicted a match, of which there may be
thousands and few are polled soon, and the lists of open predictions are removed, so that the next poll loads
them. Both kinds are new at the next poll.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import or_, select, union
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.patterns.http_cache import PageRef, Resource
from ephemera_services.league.administration.edits import RowChange
from ephemera_services.league.keys import (
    ACHIEVEMENTS,
    ACTIVE,
    ADMIN_STATS,
    ADS,
    BOARD,
    BRACKET,
    CLUB,
    COMMENTS,
    LIVE,
    LIVE_MATCHES,
    META,
    MINE,
    RESULTS,
    SCHEDULE,
    SEASON_BOARD,
    SEASON_BRACKET,
    SEASON_RESULTS,
    SEASON_SCHEDULE,
    SEASON_STATS,
    SEASON_TABLE,
    SEASONS,
    STATS,
    TABLE,
    VERSIONS,
)
from ephemera_services.league.loaders import RANGES
from ephemera_services.league.seasons import ALL
from ephemera_services.league.tables import legacy_predictions, matches, predictions

_TABLE, _SCHEDULE = (TABLE, SEASON_TABLE), (SCHEDULE, SEASON_SCHEDULE)
_RESULTS, _STATS, _BRACKET = (RESULTS, SEASON_RESULTS), (STATS, SEASON_STATS), (BRACKET, SEASON_BRACKET)
_PREDICTED = (predictions, legacy_predictions)
LEAGUE_PAGES = (_TABLE, _SCHEDULE, _RESULTS, _STATS, _BRACKET)
"""Each page of the current season, and the same of any season."""


def season_pages(
    season_id: int, pages: tuple[tuple[Resource[Any], Resource[Any]], ...] = LEAGUE_PAGES
) -> list[PageRef]:
    """Pages of the current season, of a season by its id, and of all seasons."""
    return [
        page
        for current, by_season in pages
        for page in (current.at(), *(by_season.at(season=each) for each in (str(season_id), ALL)))
    ]


def live_pages(match_id: int) -> list[PageRef]:
    """The pages that show minute, events and votes of a match."""
    of_match = {"match_id": str(match_id)}
    return [LIVE.at(**of_match), VERSIONS.at(**of_match), LIVE_MATCHES.at()]


def event_pages(match: Any) -> list[PageRef]:
    """The pages that show goals and cards of a match."""
    result = [META.at(match_id=str(match.id))] if match.status == "finished" else []
    return [*live_pages(match.id), *result, *season_pages(match.season_id, (_STATS,)), ADMIN_STATS.at()]


class Affected(msgspec.Struct):
    """The pages that a change affects."""

    bumped: list[PageRef] = []
    """Pages to replace together."""
    deleted: list[PageRef] = []
    """Pages to remove."""

    def add(self, other: Affected) -> None:
        """Add those of another change, each once."""
        for mine, its in ((self.bumped, other.bumped), (self.deleted, other.deleted)):
            known = {page.key for page in mine}
            mine.extend(page for page in its if page.key not in known)


async def pages_of(sql: AsyncConnection, rows: Sequence[RowChange]) -> Affected:
    """The pages that show these rows, as they are or were."""
    affected = Affected()
    for row in rows:
        affected.add(await _pages_of_row(sql, row))
    return affected


async def _pages_of_row(sql: AsyncConnection, row: RowChange) -> Affected:
    match row.table:
        case "matches":
            return await _pages_of_match(sql, row)
        case "events":
            query = select(matches).where(matches.c.id == row.value("match_id"))
            match = (await sql.execute(query)).one_or_none()  # it may have been deleted since
            return Affected([] if match is None else event_pages(match))
        case "clubs":
            return await _pages_of_club(sql, row)
        case "comments":
            match_id, user_id = str(row.value("match_id")), str(row.value("user_id"))
            pages = [COMMENTS.at(match_id=match_id), VERSIONS.at(match_id=match_id)]
            return Affected([*pages, ACHIEVEMENTS.at(user_id=user_id)])
        case "ads":
            return Affected([ADS.at()])
        case "seasons":
            boards = [BOARD.at(board="season"), SEASON_BOARD.at(board="season", season=str(row.id))]
            return Affected([SEASONS.at(), *season_pages(row.id), *boards])
    return Affected()  # users and assignments are on no page, players by the events that name them


async def _pages_of_match(sql: AsyncConnection, row: RowChange) -> Affected:
    if row.columns() == {"minute"}:
        return Affected(live_pages(row.id))
    current = (await sql.execute(select(matches).where(matches.c.id == row.id))).one_or_none()
    images = [row.before or {}, row.after or {}, dict(current._mapping) if current is not None else {}]

    def found(*names: str) -> set[Any]:
        return {image[name] for image in images for name in names if name in image}

    statuses = found("status")
    is_new = None in (row.before, row.after)  # the table lists the clubs that have a match
    lists = LEAGUE_PAGES if is_new or "finished" in statuses else (_SCHEDULE, _BRACKET)
    pairs = tuple(pair for pair in lists if pair is not _BRACKET or found("stage") - {"league"})
    bumped = [page for season in sorted(found("season_id")) for page in season_pages(season, pairs)]
    bumped += [*live_pages(row.id), META.at(match_id=str(row.id))]
    bumped += [CLUB.at(id=str(each)) for each in sorted(found("home_id", "away_id"))]
    deleted = [ACTIVE.at(range=each) for each in RANGES] if "scheduled" in statuses else []
    personal = [MINE]
    if "finished" in statuses:
        bumped.append(ADMIN_STATS.at())
        personal.append(ACHIEVEMENTS)
    users = await _predicted_by(sql, [row.id])
    deleted += [page.at(user_id=user) for user in users for page in personal]
    return Affected(bumped, deleted)


async def _pages_of_club(sql: AsyncConnection, row: RowChange) -> Affected:
    """Its name is on every page that shows one of its matches, which may be many seasons."""
    query = select(matches).where(or_(matches.c.home_id == row.id, matches.c.away_id == row.id))
    played = (await sql.execute(query)).all()
    seasons = sorted({match.season_id for match in played})
    opponents = {club for match in played for club in (match.home_id, match.away_id)} - {row.id}
    bumped = [page for season in seasons for page in season_pages(season)]
    deleted = [page.at(match_id=str(match.id)) for match in played for page in (META, VERSIONS)]
    deleted += [CLUB.at(id=str(club)) for club in sorted(opponents)]
    deleted += [ACTIVE.at(range=each) for each in RANGES]
    users = await _predicted_by(sql, [match.id for match in played])
    deleted += [MINE.at(user_id=user) for user in users]
    affected = Affected()
    affected.add(Affected([CLUB.at(id=str(row.id)), LIVE_MATCHES.at(), *bumped], deleted))
    return affected


async def _predicted_by(sql: AsyncConnection, match_ids: Sequence[int]) -> list[str]:
    """The users who have predicted one of these matches."""
    queries = [select(each.c.user_id).where(each.c.match_id.in_(match_ids)) for each in _PREDICTED]
    return [str(each) for each in (await sql.execute(union(*queries))).scalars()]
