"""Pages without Redis: from the local cache, stale pages, then the loader, then 503."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
from fastapi import FastAPI

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed
from ephemera.keyspace import Store
from ephemera.patterns.cache import cache_engine
from tests.patterns.league_site import SECOND, League, Source, connect_league
from tests.web.http_cache_app import application, ask
from tests.wire.conditions import eventually


class Opened:
    """An application, its store and its source."""

    def __init__(self, league: League, store: Store, source: Source) -> None:
        self.league, self.store, self.source = league, store, source
        self.site = store[league.site]
        self.app: FastAPI = application(league, store)


@pytest.fixture
def victim() -> Iterator[Valkey]:
    """A server for a single test."""
    with embedded.valkey() as running:
        yield running
        running.resume()


@pytest.fixture
async def opened(victim: Valkey) -> AsyncIterator[Opened]:
    """A league on it."""
    league = League(f"o{uuid4().hex[:8]}", wait=3 * SECOND)
    source = Source(1)
    async with connect_league(victim.url, league, source) as store:
        yield Opened(league, store, source)


async def _polled(opened: Opened, path: str) -> dict[str, str]:
    """The tag of a page that is in the local cache."""
    first = await ask(opened.app, path)
    await ask(opened.app, path)
    return {"if-none-match": first.headers["etag"]}


async def test_local_pages_are_served_when_redis_is_down(opened: Opened, victim: Valkey) -> None:
    """304 for a client with the page, 200 for others, from the local cache, without the source."""
    tags = await _polled(opened, "/results")
    victim.kill()
    await eventually(lambda: not opened.store.client().up)
    for _ in range(20):
        assert (await ask(opened.app, "/results", headers=tags)).status == 304
        assert (await ask(opened.app, "/results")).status == 200
    assert opened.source.loads == 1


async def test_stale_pages_are_served_at_once_when_redis_hangs(opened: Opened, victim: Valkey) -> None:
    """After the first timeout, a stale page is served at once, and refreshed by the loader."""
    tags = await _polled(opened, "/brief")
    victim.pause()
    await eventually(lambda: not opened.store.client().up)
    opened.source.points = 2
    took = []
    answer = None
    for _ in range(50):
        began = time.perf_counter()
        answer = await ask(opened.app, "/brief", headers=tags)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.01)
    assert sorted(took)[25] < 0.25  # never the wire's timeout again
    assert answer is not None
    assert (answer.status, answer.body) == (200, b'{"points":2}')


async def test_the_first_requests_to_a_hung_redis_wait_for_the_timeout(
    opened: Opened, victim: Valkey
) -> None:
    """A page that is not in the local cache is loaded after the timeout."""
    victim.pause()
    answer = await ask(opened.app, "/results")
    assert answer.status in (200, 202)
    while answer.status == 202:
        answer = await ask(opened.app, "/results")
    assert answer.body == b'{"points":1}'


async def test_the_loader_produces_the_same_tags_without_redis(opened: Opened, victim: Valkey) -> None:
    """Tags come from the content, so a page loaded without Redis has the same tag."""
    first = await ask(opened.app, "/results")
    cache_engine(opened.store[opened.league.results.cache]).drop_local(opened.league.results.at().key)
    victim.kill()
    await eventually(lambda: not opened.store.client().up)
    again = await ask(opened.app, "/results", headers={"if-none-match": first.headers["etag"]})
    assert again.status == 304
    assert opened.source.loads == 2
    opened.source.points = 2
    cache_engine(opened.store[opened.league.results.cache]).drop_local(opened.league.results.at().key)
    other = await ask(opened.app, "/results", headers={"if-none-match": first.headers["etag"]})
    assert other.status == 200
    assert other.headers["x-resource-version"] > first.headers["x-resource-version"]


async def test_a_failing_source_without_redis_is_503(opened: Opened, victim: Valkey) -> None:
    """503 with Retry-After, and the source is not called again at once."""
    victim.kill()
    await eventually(lambda: not opened.store.client().up)
    opened.source.broken = True
    for _ in range(20):
        answer = await ask(opened.app, "/table")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert opened.source.loads == 1


async def test_a_slow_source_without_redis_is_202(opened: Opened, victim: Valkey) -> None:
    """Concurrent requests share the load, and get 202."""
    victim.kill()
    await eventually(lambda: not opened.store.client().up)
    opened.source.gate.clear()
    answers = await asyncio.gather(*(ask(opened.app, "/results") for _ in range(20)))
    assert {answer.status for answer in answers} == {202}
    assert opened.source.loads == 1
    opened.source.gate.set()
    await eventually(lambda: opened.store[opened.league.results].stats.misses)
    while (answer := await ask(opened.app, "/results")).status == 202:
        pass
    assert answer.status == 200
    assert opened.source.loads == 1


async def test_a_bump_without_redis_raises_and_reloads_locally(opened: Opened, victim: Valkey) -> None:
    """It raises, so that the caller repeats it; this process no longer serves the old page."""
    await _polled(opened, "/results")
    victim.kill()
    await eventually(lambda: not opened.store.client().up)
    opened.source.points = 2
    with pytest.raises(ConnectionFailed):
        await opened.site.bump(opened.league.results.at())
    assert (await ask(opened.app, "/results")).body == b'{"points":2}'


async def test_pages_are_validated_again_when_redis_is_back(opened: Opened, victim: Valkey) -> None:
    """After a restart without its data, local pages are validated against the server again."""
    await _polled(opened, "/results")
    victim.kill()
    await eventually(lambda: not opened.store.client().up)
    await ask(opened.app, "/results")
    opened.source.points = 2
    await asyncio.to_thread(victim.restart)
    await eventually(lambda: opened.store.client().up)
    assert (await ask(opened.app, "/results")).body == b'{"points":2}'
