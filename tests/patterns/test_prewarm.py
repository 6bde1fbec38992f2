"""Prewarming: which pages, how fast, by which process, and what happens when it fails."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import IO, cast
from uuid import uuid4

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed
from ephemera.patterns.http_cache import Freshness, PrewarmReport
from tests.patterns.league_site import SECOND, League, Opened, Source, connect_league
from tests.web.http_cache_app import TOKEN, application, ask
from tests.wire.conditions import eventually


@pytest.fixture
async def opened(url: str) -> AsyncIterator[Opened]:
    """A league of its own, on Valkey, on Redis 7 and on a cluster."""
    league = League(f"p{uuid4().hex[:8]}", prewarm_rate=200, prewarm_limit=3)
    source = Source(1)
    async with connect_league(url, league, source) as store:
        yield Opened(league, store, source)


async def test_declared_resources_are_prewarmed(opened: Opened) -> None:
    """Table and results are loaded; a second run finds them fresh, and loads nothing."""
    assert await opened.site.prewarm() == PrewarmReport(loaded=2, fresh=0, failed=0)
    assert await opened.site.prewarm() == PrewarmReport(loaded=0, fresh=2, failed=0)
    assert opened.source.loads == 2
    assert await opened.store[opened.league.table].page() is not None
    assert opened.source.loads == 2


async def test_the_most_requested_pages_are_prewarmed(opened: Opened) -> None:
    """The two most requested of five matches are loaded after a deletion; private pages never are."""
    league, live = opened.league, opened.store[opened.league.live]
    for match, times in ((1, 1), (2, 30), (3, 2), (4, 20), (5, 2)):
        for _ in range(times):
            await live.page(match_id=str(match))
    await opened.store[league.picks].page(user_id="ann")
    await opened.store[league.site.prewarm].record(opened.site._context.hits)
    requested = await opened.store[league.site.prewarm].most_requested()
    assert requested[:2] == [league.live.at(match_id=str(match)).key for match in (2, 4)]
    assert len(requested) == 3
    await opened.site.delete(*(league.live.at(match_id=str(match)) for match in (2, 4)))
    report = await opened.site.prewarm()
    assert report is not None
    assert (report.loaded, report.failed) == (4, 0)
    assert not any("ann" in key for key in requested)


async def test_the_record_keeps_the_most_requested(opened: Opened) -> None:
    """Of a thousand counted pages the thirty most requested are kept, for two days."""
    prewarm = opened.store[opened.league.site.prewarm]
    await prewarm.record({f"{number}": 1 for number in range(480)} | {"hot": 9})
    await prewarm.record({f"{number}": 2 for number in range(480, 960)} | {"hot": 9})
    hits = opened.store[opened.league.site.prewarm.hits]
    key = hits.key(day=int(time.time() // 86_400))
    assert await opened.store.call("ZCARD", key) == 30
    assert await opened.store.call("ZSCORE", key, "hot") == 18
    assert 86_400_000 < await opened.store.call("PTTL", key) <= 2 * 86_400_000


async def test_requests_are_counted_with_and_without_a_local_page(opened: Opened) -> None:
    """Both the first request and those answered locally count."""
    live, key = opened.store[opened.league.live], opened.league.live.at(match_id="1").key
    await live.page(match_id="1")
    await live.page(match_id="1")
    while live.peek(key) is None:
        await live.page(match_id="1")
    before = opened.site._context.hits[key]
    for _ in range(5):
        live.peek(key)
    assert opened.site._context.hits[key] == before + 5


async def test_a_page_that_fails_is_logged_and_skipped(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    """One broken loader does not stop the run."""
    opened.source.broken = True
    with caplog.at_level(logging.WARNING, "ephemera"):
        assert await opened.site.prewarm() == PrewarmReport(loaded=0, fresh=0, failed=2)
    assert f"prewarming '{opened.league.table.at().key}' has failed" in caplog.text
    opened.source.broken = False
    assert await opened.site.prewarm() == PrewarmReport(loaded=2, fresh=0, failed=0)


async def test_one_process_prewarms_at_a_time(opened: Opened) -> None:
    """Of three concurrent runs one loads and two return None; the source is called once per page."""
    reports = await asyncio.gather(*(opened.site.prewarm() for _ in range(3)))
    assert sorted(map(str, reports)) == ["None", "None", "PrewarmReport(loaded=2, fresh=0, failed=0)"]
    assert opened.source.loads == 2


async def test_it_is_rate_limited(server: Valkey) -> None:
    """At ten per second, the second page is loaded a tenth of a second after the first at the earliest."""
    league = League(f"p{uuid4().hex[:8]}", prewarm_rate=10)
    async with connect_league(server.url, league, Source()) as store:
        began = time.monotonic()
        await store[league.site].prewarm()
        assert time.monotonic() - began >= 0.2  # two loads


async def test_a_killed_leader_is_replaced_and_the_rest_is_loaded(server: Valkey) -> None:
    """After SIGKILL in the middle of a run another process loads the rest once the lease has ended."""
    name = f"p{uuid4().hex[:8]}"
    command = [sys.executable, "-m", "tests.patterns.prewarm_leader", server.url, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as leader:
        assert cast("IO[str]", leader.stdout).readline() == "loaded one, stuck in the next\n"
        leader.kill()
    league = League(name, prewarm_rate=200)
    source = Source(1)
    async with connect_league(server.url, league, source) as store:
        site = store[league.site]
        report = None
        for _ in range(300):
            report = await site.prewarm()
            if report is not None:
                break
            await asyncio.sleep(0.05)
        assert report == PrewarmReport(loaded=1, fresh=1, failed=0)
        assert source.loads == 1


async def test_openings_are_prewarmed(server: Valkey) -> None:
    """`prewarm_at_openings` refreshes older pages when a window opens, without a request."""
    league = League(f"p{uuid4().hex[:8]}", prewarm_rate=200)
    source = Source(1)
    async with connect_league(server.url, league, source) as store:
        site = store[league.site]
        await store[league.table].page()
        site.prewarm_at_openings()
        source.matches, source.points = [datetime.now(UTC) + SECOND / 100], 2
        await eventually(lambda: source.loads >= 3)  # the table again, and the results


async def test_a_failed_opening_is_tried_again(server: Valkey) -> None:
    """When listing the pages fails once, `prewarm_at_openings` tries again and continues."""
    league = League(f"p{uuid4().hex[:8]}", prewarm_rate=200)
    asked = 0

    async def seasons(_: Source) -> list[dict[str, str]]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise LookupError("the database is briefly unavailable")
        return [{"season": "2026"}]

    async def load(source: Source, season: str) -> str:
        return f"{season}: {await source.read()}"

    stats = league.site.resource(
        f"{league.site.name}:stats:{{season}}",
        load,
        freshness=Freshness(fresh=SECOND),
        prewarm=seasons,
        purpose="Statistics",
    )
    source = Source(1)
    async with connect_league(server.url, league, source) as store:
        source.matches = [datetime.now(UTC)]
        store[league.site].prewarm_at_openings()
        await eventually(lambda: source.loads == 3)
        assert asked == 2
        assert await store.call("EXISTS", stats.at(season="2026").key) == 1


async def test_the_endpoint_prewarms_in_the_background(server: Valkey) -> None:
    """It answers 202 while the loads are still under way; repeating it changes nothing."""
    league = League(f"p{uuid4().hex[:8]}", prewarm_rate=200)
    source = Source(1)
    async with connect_league(server.url, league, source) as store:
        app = application(league, store)
        source.gate.clear()
        for _ in range(3):
            answer = await ask(app, "/prewarm", "POST", {"x-prewarm-token": TOKEN})
            assert (answer.status, answer.body) == (202, b'{"status":"prewarming"}')
        await eventually(lambda: source.loads == 1)
        source.gate.set()
        await eventually(lambda: source.loads == 2)
        assert (await ask(app, "/prewarm", "GET", {"x-prewarm-token": TOKEN})).status == 405


async def test_without_redis_prewarming_fails_visibly(caplog: pytest.LogCaptureFixture) -> None:
    """`prewarm` raises, the endpoint answers and logs, and requests are still counted."""
    league = League(f"p{uuid4().hex[:8]}")
    with embedded.valkey() as victim:
        async with connect_league(victim.url, league, Source(1)) as store:
            site = store[league.site]
            victim.kill()
            await eventually(lambda: not store.client().up)
            with pytest.raises(ConnectionFailed):
                await site.prewarm()
            app = application(league, store)
            with caplog.at_level(logging.WARNING, "ephemera"):
                assert (await ask(app, "/prewarm", "POST", {"x-prewarm-token": TOKEN})).status == 202
                await eventually(lambda: f"prewarming {league.site.name} failed" in caplog.text)
            await store[league.live].page(match_id="1")
            assert site._context.hits
