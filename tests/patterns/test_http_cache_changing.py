"""A commit inside of `changing`: at no time has one page the change and another has not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from ephemera import embedded
from ephemera.errors import ConnectionFailed
from ephemera.keyspace import Store
from tests.patterns.league_site import League, Opened, Source, connect_league


@pytest.fixture
async def opened(url: str) -> AsyncIterator[Opened]:
    """A league of its own, on Valkey, on Redis 7 and on a cluster."""
    league = League(f"l{uuid4().hex[:8]}")
    source = Source(1)
    async with connect_league(url, league, source) as store:
        yield Opened(league, store, source)


async def _points(store: Store, league: League) -> list[int]:
    pages = [await store[resource].page() for resource in (league.table, league.results)]
    return [page.json()["points"] for page in pages if page is not None]


async def test_no_page_is_stored_between_the_commit_and_the_bump(opened: Opened, url: str) -> None:
    """After the commit readers get both old pages, though one is stale, and then both new ones."""
    league, source = opened.league, opened.source
    async with connect_league(url, league, source) as other:
        assert await _points(other, league) == [1, 1]
        async with opened.site.changing(league.table.at(), league.results.at()):
            source.points = 2  # the commit
            await other[league.results.cache].expire()
            assert await _points(other, league) == [1, 1]
        await other.call("GET", league.table.at().key)  # the announcement arrives before this reply
        await other.call("GET", league.results.at().key)
        assert await _points(other, league) == [2, 2]


async def test_a_bump_alone_leaves_a_gap(opened: Opened) -> None:
    """Without `changing`, a load between the commit and the bump is stored, and one page is ahead."""
    league = opened.league
    assert await _points(opened.store, league) == [1, 1]
    opened.source.points = 2  # the commit
    await opened.store[league.results.cache].delete()
    assert await _points(opened.store, league) == [1, 2]
    await opened.site.bump(league.table.at(), league.results.at())
    assert await _points(opened.store, league) == [2, 2]


async def test_a_commit_that_fails_bumps_nothing(opened: Opened) -> None:
    """The error is raised, the pages are unchanged, and they can soon be loaded again."""
    league = opened.league
    assert await _points(opened.store, league) == [1, 1]
    loads = opened.source.loads
    with pytest.raises(ZeroDivisionError):
        async with opened.site.changing(league.table.at(), league.results.at()):
            raise ZeroDivisionError
    assert opened.source.loads == loads
    opened.source.points = 3
    await opened.store[league.results.cache].expire()
    async with asyncio.timeout(60):
        while await _points(opened.store, league) != [1, 3]:
            await asyncio.sleep(0.01)


async def test_without_the_server_the_commit_is_not_begun() -> None:
    """When Redis is down ConnectionFailed is raised before the block is entered."""
    league = League(f"l{uuid4().hex[:8]}")
    with embedded.valkey() as server:
        async with connect_league(server.url, league, Source(1)) as store:
            site = store[league.site]
            await _points(store, league)
            server.stop()
            with pytest.raises(ConnectionFailed):
                async with site.changing(league.table.at()):
                    pytest.fail("the block was entered")
