"""A site of two pages, a page for each match and one for each user, on a source that tests can change."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any

from ephemera.keyspace import Catalogue, Store, connect
from ephemera.patterns.cache import LocalCache
from ephemera.patterns.http_cache import Freshness, HttpCache, Representation, Settled
from ephemera.patterns.windows import Windows

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


class Source:
    """What loaders read: results, and when the matches are."""

    def __init__(self, points: int = 0) -> None:
        self.points = points
        self.loads = 0
        self.broken = False
        self.matches: list[datetime] = []
        self.picks: dict[str, str] = {}
        self.pad = ""
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self) -> int:
        """The points now; while the gate is closed, the reader waits after reading."""
        self.loads += 1
        points = self.points
        await self.gate.wait()
        if self.broken:
            raise LookupError("the source is down")
        return points


async def load_table(source: Source) -> dict[str, Any]:
    """The table."""
    return {"points": await source.read(), "pad": source.pad}


async def load_results(source: Source) -> dict[str, Any]:
    """The results, which must agree with the table."""
    return {"points": await source.read()}


async def load_live(source: Source, match_id: str) -> dict[str, Any] | None:
    """A match; those above 1000 are not known."""
    return None if int(match_id) > 1000 else {"match": match_id, "points": await source.read()}


async def load_picks(source: Source, user_id: str) -> dict[str, Any]:
    """What a user has picked."""
    source.loads += 1
    return {"pick": source.picks.get(user_id, "none")}


async def load_season(source: Source, season: str) -> Any:
    """The points of a season, which are settled if it is past."""
    points = {"season": season, "points": await source.read()}
    return Settled(points) if season < "2026" else points


async def matches(source: Source, since: datetime, until: datetime) -> list[datetime]:
    """The schedule of the windows."""
    return [match for match in source.matches if since <= match <= until]


class League:
    """The declarations, with keys of their own if a name is given."""

    def __init__(self, name: str = "league", **options: Any) -> None:
        self.catalogue = Catalogue(name)
        cached_for = options.pop("cached_for", SECOND / 5)
        self.windows = Windows(
            self.catalogue, f"{name}:window", matches, lead_time=timedelta(0), cached_for=cached_for
        )
        self.site: HttpCache[Source] = HttpCache(self.catalogue, name, windows=self.windows, **options)
        outside = Freshness(fresh=10 * MINUTE, stale=10 * MINUTE)
        inside = Freshness(fresh=SECOND / 2, stale=5 * MINUTE)
        self.table = self.site.resource(
            f"{name}:table",
            load_table,
            freshness=outside,
            in_window=inside,
            prewarm=True,
            purpose="The table",
        )
        self.results = self.site.resource(
            f"{name}:results", load_results, freshness=outside, prewarm=True, purpose="The results"
        )
        self.seasons = self.site.resource(
            f"{name}:table:{{season}}",
            load_season,
            freshness=outside,
            in_window=inside,
            settled=Freshness(fresh=60 * MINUTE, stale=MINUTE),
            purpose="The table of a season",
        )
        self.live = self.site.resource(
            f"{name}:live:{{match_id}}",
            load_live,
            freshness=Freshness(fresh=MINUTE, stale=MINUTE),
            missing=MINUTE,
            representation=Representation(max_age=10 * SECOND),
            purpose="A match",
        )
        self.picks = self.site.resource(
            f"{name}:picks:{{user_id}}",
            load_picks,
            freshness=Freshness(fresh=MINUTE),
            representation=Representation(private="user_id"),
            purpose="What a user has picked",
        )
        self.brief = self.site.resource(
            f"{name}:brief",
            load_results,
            freshness=Freshness(fresh=SECOND / 10, stale=10 * MINUTE),
            local=LocalCache(max_age=SECOND / 10),
            purpose="Stale at once",
        )

    def resources(self, source: Source) -> dict[Any, object]:
        """What a store of this league is opened with."""
        return {self.site: source, self.windows: source}


def connect_league(url: str, league: League, source: Source) -> AbstractAsyncContextManager[Store]:
    """Open a store of a league on a source."""
    return connect(url, league.catalogue, resources=league.resources(source))


class Opened:
    """A league on a store, and its source."""

    def __init__(self, league: League, store: Store, source: Source) -> None:
        self.league, self.store, self.source = league, store, source
        self.site = store[league.site]
