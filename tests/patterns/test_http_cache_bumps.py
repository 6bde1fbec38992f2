"""Bumps: pages that are replaced together, all or none, and which no load or earlier bump can undo."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import IO, Any, cast
from uuid import uuid4

import msgspec
import pytest

from ephemera.embedded import Valkey
from ephemera.keyspace import Store
from ephemera.patterns.cache import cache_engine
from ephemera.patterns.http_cache import Resource
from tests.patterns.league_site import League, Opened, Source, connect_league
from tests.wire.conditions import eventually


@pytest.fixture
async def opened(url: str) -> AsyncIterator[Opened]:
    """A league of its own, on Valkey, on Redis 7 and on a cluster."""
    league = League(f"l{uuid4().hex[:8]}")
    source = Source(1)
    async with connect_league(url, league, source) as store:
        yield Opened(league, store, source)


async def test_a_bump_changes_all_its_pages(opened: Opened, url: str) -> None:
    """When a bump returns, pages, numbers and ETags are new in every process."""
    league = opened.league
    async with connect_league(url, league, opened.source) as other_store:
        stores = (opened.store, other_store)
        for store in stores:
            await store[league.table].page()
            await store[league.results].page()
        opened.source.points = 7
        await opened.site.bump(league.table.at(), league.results.at(), league.live.at(match_id=3))
        for store in stores:
            await store.call("GET", league.table.at().key)  # the announcement arrives before this reply
            await store.call("GET", league.results.at().key)
            for page in (await store[league.table].page(), await store[league.results].page()):
                assert page is not None
                assert page.json()["points"] == 7


@pytest.mark.standalone("pages of several slots are bumped together, but not in one step")
async def test_table_and_results_never_disagree(server: Valkey) -> None:
    """Reading both pages at once, at any time during fifty bumps by two processes, shows one state."""
    league = League(f"l{uuid4().hex[:8]}")
    keys = [league.table.at().key, league.results.at().key]
    decode = msgspec.msgpack.decode
    source = Source()
    async with (
        connect_league(server.url, league, source) as one,
        connect_league(server.url, league, source) as two,
        connect_league(server.url, league, source) as reader,
    ):
        seen: list[tuple[int, ...]] = []
        done = False

        async def read() -> None:
            while not done:
                pages = [decode(data)[1][5] for data in await reader.call("MGET", *keys)]
                seen.append(tuple(msgspec.json.decode(page[7])["points"] for page in pages))

        sites = [store[league.site] for store in (one, two)]
        await sites[0].bump(league.table.at(), league.results.at())
        reading = asyncio.create_task(read())
        for number in range(50):
            source.points = number
            await sites[number % 2].bump(league.table.at(), league.results.at())
        done = True
        await reading
        assert len(set(seen)) > 5
        assert all(table == results for table, results in seen)


async def test_a_load_from_before_a_bump_is_not_stored(opened: Opened) -> None:
    """A slow load that read the old points is refused after a bump has stored the new ones."""
    league, source = opened.league, opened.source
    before = source.gate
    before.clear()
    slow = asyncio.create_task(opened.store[league.table].page())
    await eventually(lambda: source.loads == 1)
    source.gate = asyncio.Event()
    source.gate.set()
    source.points = 2
    await opened.site.bump(league.table.at())
    before.set()
    await slow
    page = await opened.store[league.table].page()
    assert page is not None
    assert page.json()["points"] == 2


async def test_of_two_bumps_the_later_one_wins(server: Valkey) -> None:
    """A bump that is overtaken by a later one does not store its older pages."""
    league = League(f"l{uuid4().hex[:8]}")
    first, second = Source(1), Source(2)
    async with (
        connect_league(server.url, league, first) as one,
        connect_league(server.url, league, second) as two,
    ):
        first.gate.clear()
        early = asyncio.create_task(one[league.site].bump(league.table.at(), league.results.at()))
        await eventually(lambda: first.loads == 2)
        await two[league.site].bump(league.table.at())
        stored = await two[league.table].page()
        assert stored is not None
        first.points = 2  # what the early one would read now
        first.gate.set()
        await early
        assert first.loads == 4  # it was refused, and started again
        page = await two[league.table].page()
        assert page is not None
        assert page.json()["points"] == 2


async def test_a_bump_whose_loader_fails_changes_nothing(opened: Opened) -> None:
    """The loader's error is raised, and both pages are unchanged."""
    league, source = opened.league, opened.source
    before = [await opened.store[each].page() for each in (league.table, league.results)]
    source.points, source.broken = 2, True
    with pytest.raises(LookupError):
        await opened.site.bump(league.table.at(), league.results.at())
    after = [await opened.store[each].page() for each in (league.table, league.results)]
    assert [page and page.etag for page in after] == [page and page.etag for page in before]


async def test_a_bump_that_is_killed_changes_nothing_and_is_repeated(server: Valkey) -> None:
    """After SIGKILL during its loads the pages are unchanged, and the next bump does not wait for it."""
    name = f"l{uuid4().hex[:8]}"
    league = League(name)
    source = Source(1)
    async with connect_league(server.url, league, source) as store:
        site = store[league.site]
        await site.bump(league.table.at(), league.results.at())
        command = [sys.executable, "-m", "tests.patterns.bump_worker", server.url, name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bumping:
            assert cast("IO[str]", bumping.stdout).readline() == "loading\n"
            bumping.kill()
        assert [await _points(store, each) for each in (league.table, league.results)] == [1, 1]
        source.points = 3
        await site.bump(league.table.at(), league.results.at())
        assert [await _points(store, each) for each in (league.table, league.results)] == [3, 3]


async def _points(store: Store, resource: Resource[Source]) -> int | None:
    page = await store[resource].page()
    return None if page is None else page.json()["points"]


async def test_a_bump_removes_a_page_that_is_gone(opened: Opened) -> None:
    """A bump whose loader returns None removes the page, or remembers that there is none."""
    league = opened.league
    known = opened.store[league.live]
    assert await known.page(match_id="1000") is not None
    await opened.site.bump(league.live.at(match_id="1001"), league.table.at())
    assert await known.page(match_id="1001") is None


async def test_deleted_pages_are_loaded_again(opened: Opened) -> None:
    """After `delete` the next request gets the current content."""
    league = opened.league
    await opened.store[league.table].page()
    opened.source.points = 5
    await opened.site.delete(league.table.at(), league.results.at())
    page = await opened.store[league.table].page()
    assert page is not None
    assert page.json()["points"] == 5


@pytest.mark.standalone("pages of several slots are bumped together, but not in one step")
async def test_reading_one_bumped_page_drops_older_local_ones(server: Valkey) -> None:
    """Even without tracking, a process that has read the new table does not serve the old results."""
    league = League(f"l{uuid4().hex[:8]}")
    source = Source(1)
    async with (
        connect_league(server.url, league, source) as deaf,
        connect_league(server.url, league, source) as other,
    ):
        for resource in league.site.resources:
            entries: Any = cache_engine(deaf[resource.cache]).entries
            entries._on_change = lambda keys: None  # its invalidations are lost
        for _ in range(2):
            await deaf[league.table].page()
            await deaf[league.results].page()
        source.points = 2
        await other[league.site].bump(league.table.at(), league.results.at())
        old = deaf[league.results].peek(league.results.at().key)
        assert old is not None
        assert old.json()["points"] == 1
        cache_engine(deaf[league.table.cache]).drop_local(
            league.table.at().key
        )  # its local entry has expired
        await deaf[league.table].page()
        results = await deaf[league.results].page()
        assert results is not None
        assert results.json()["points"] == 2
