"""The league's table is renewed more often while requests peak, and as before afterwards."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import httpx
from sqlalchemy import func, insert

from ephemera import connect
from ephemera.embedded import Postgres, Valkey
from ephemera_services.league import catalogue
from ephemera_services.league.figures import RequestMeter
from ephemera_services.league.keys import SITE, TABLE, WINDOWS
from ephemera_services.league.peak import PeakAdaptation
from ephemera_services.league.tables import clubs, matches, metadata
from ephemera_services.runtime import open_engine
from tests.services.league_users import add_season, league, referee, until
from tests.services.services import Served

PEAK = 5
"""Requests per second: few, so that a busy machine serves them too."""


async def test_the_freshness_follows_the_rate(valkey: Valkey, postgres: Postgres) -> None:
    """30 s below the peak, 15 at it, 10 at twice of it and more; a rate around it does not switch."""
    async with (
        open_engine(postgres.database("league_peak"), metadata) as engine,
        connect(valkey.url, catalogue, resources={SITE: engine, WINDOWS: engine}) as store,
    ):
        async with engine.begin() as sql:
            await sql.execute(insert(clubs), [{"id": 1, "name": "Comet"}, {"id": 2, "name": "Meteor"}])
            match = {"stage": "league", "round": 1, "home_id": 1, "away_id": 2, "venue": "Here"}
            match["season_id"] = await add_season(sql)
            await sql.execute(insert(matches).values(**match, kickoff=func.now()))
        meter = RequestMeter()
        adaptation = PeakAdaptation(store, meter, 10)
        found, now = [], 0.0
        assert (await store[WINDOWS].now()).is_open
        for rate in (0, 9, 10, 15, 20, 200, 9, 7):
            for _ in range(11):
                now += 1
                for _ in range(rate):
                    meter.count(200, 0.001)
                adaptation.adapt(now)
            await store[SITE].bump(TABLE.at())
            page = await store[TABLE].page()
            assert page is not None
            found.append((adaptation.figures.table_seconds, round(page.fresh / 1000)))
    declared = (None, 30)
    assert found == [declared, declared, (15, 15), (12, 12), (10, 10), (10, 10), (15, 15), declared]


def test_a_burst_of_requests_renews_the_table_more_often(
    valkey: Valkey, places: dict[str, str], tmp_path: Path
) -> None:
    """Within a window, tables stored in a burst are fresh for 10 to 15 s, and after it for 30 s again."""
    limit = {"EPHEMERA_LEAGUE_PEAK_REQUESTS_PER_SECOND": str(PEAK), "EPHEMERA_LEAGUE_PREWARM": "false"}
    with league(tmp_path, places, **limit) as served, referee(served) as admin:
        assert until(lambda: _burst(served) and _finalize(admin, valkey) <= timedelta(seconds=15))
        peak = admin.get("/api/admin/monitoring").json()["peak"]
        assert peak["requests_per_second"] > 0
        assert until(lambda: any("the peak is over" in line["message"] for line in served.lines()))
        assert _finalize(admin, valkey) == timedelta(seconds=30)


def _burst(served: Served) -> bool:
    """Request the table a hundred times; whether all were served."""
    with ThreadPoolExecutor(8) as threads:
        statuses = threads.map(lambda _: served.client.get("/api/league/table").status_code, range(100))
        return {*statuses} == {200}


def _finalize(admin: httpx.Client, valkey: Valkey) -> timedelta:
    """Finalize a match, after which the table is stored anew; how long it is fresh."""
    result = {"home_goals": 1, "away_goals": 0, "override": True}
    admin.post("/api/admin/matches/41/finalize", json=result).raise_for_status()
    return asyncio.run(_freshness(valkey.url))


async def _freshness(url: str) -> timedelta:
    async with connect(url, catalogue) as store:
        page = await store[TABLE.cache.keyspace].get()
    assert page is not None
    assert page.value is not None
    return timedelta(milliseconds=page.value.fresh)
