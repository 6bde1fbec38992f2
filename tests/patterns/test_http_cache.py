"""Pages: ETags and numbers, and what callers get while a page loads, fails or is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, LoadFailed, MissingResource, StillLoading
from ephemera.keyspace import Catalogue
from ephemera.patterns.cache import cache_engine
from ephemera.patterns.http_cache import Freshness, HttpCache, Representation
from tests.patterns.league_site import (
    MINUTE,
    SECOND,
    League,
    Opened,
    Source,
    connect_league,
    load_live,
    load_results,
    load_table,
)
from tests.wire.conditions import eventually


@pytest.fixture
async def opened(url: str) -> AsyncIterator[Opened]:
    """A league of its own, on Valkey, on Redis 7 and on a cluster."""
    league = League(f"l{uuid4().hex[:8]}")
    source = Source(1)
    async with connect_league(url, league, source) as store:
        yield Opened(league, store, source)


async def test_a_page_is_loaded_once_and_then_local(opened: Opened) -> None:
    """The second read comes from this process: no round trip, the same ETag and number."""
    table = opened.store[opened.league.table]
    first = await table.page()
    await table.page()
    key = opened.league.table.at().key
    local = table.peek(key)
    assert first is not None
    assert local is not None
    assert (local.etag, local.number, local.json()["points"]) == (first.etag, first.number, 1)
    assert opened.source.loads == 1


async def test_the_same_content_keeps_its_etag_and_number(opened: Opened) -> None:
    """A refresh with the same content changes neither; other content changes both, and the number grows."""
    table = opened.store[opened.league.table]
    first = await table.page()
    await opened.site.bump(opened.league.table.at())
    same = await table.page()
    opened.source.points = 2
    await opened.site.bump(opened.league.table.at())
    other = await table.page()
    assert first is not None
    assert same is not None
    assert other is not None
    assert (first.etag, first.number) == (same.etag, same.number)
    assert other.etag != first.etag
    assert other.number > first.number
    assert opened.source.loads == 3


async def test_a_number_grows_though_the_clock_is_set_back(opened: Opened) -> None:
    """The number of new content is larger than that of a page from the server's future."""
    table, key = opened.store[opened.league.table], opened.league.table.at().key
    first = await table.page()
    assert first is not None
    stored = await opened.store.call("GET", key)
    future = str(int(first.number) + 10**12)
    await opened.store.call("SET", key, stored.replace(first.number.encode(), future.encode()), "KEEPTTL")
    opened.source.points = 2
    await opened.site.bump(opened.league.table.at())
    later = await table.page()
    assert later is not None
    assert int(later.number) == int(future) + 1


async def test_a_stale_page_is_served_and_refreshed_once(server: Valkey) -> None:
    """Forty callers on two stores get the stale page, and it is loaded once."""
    league = League(f"l{uuid4().hex[:8]}")
    source = Source(1)
    async with (
        connect_league(server.url, league, source) as one,
        connect_league(server.url, league, source) as two,
    ):
        for store in (one, two):
            await store[league.results].page()
        await one[league.results.cache].expire()
        source.points = 2
        source.gate.clear()
        pages = await asyncio.gather(
            *(store[league.results].page() for store in (one, two) for _ in range(20))
        )
        assert {page.json()["points"] for page in pages if page} == {1}
        await eventually(lambda: source.loads == 2)
        source.gate.set()
        while (page := await two[league.results].page()) and page.json()["points"] == 1:
            await asyncio.sleep(0.001)
        assert source.loads == 2


async def test_a_slow_first_load_raises_still_loading(server: Valkey) -> None:
    """A caller that waits longer than `wait` gets StillLoading; the load continues for the next one."""
    league = League(f"l{uuid4().hex[:8]}", wait=SECOND / 20)
    source = Source(3)
    async with connect_league(server.url, league, source) as store:
        source.gate.clear()
        with pytest.raises(StillLoading, match="still loading"):
            await store[league.table].page()
        source.gate.set()
        while True:
            try:
                page = await store[league.table].page()
                break
            except StillLoading:
                continue
        assert page is not None
        assert source.loads == 1


async def test_a_failed_load_is_not_repeated_at_once(opened: Opened) -> None:
    """Twenty requests after a failure call the source once, and the error says when to try again."""
    opened.source.broken = True
    for _ in range(20):
        with pytest.raises(LoadFailed) as failure:
            await opened.store[opened.league.results].page()
        assert 0 < failure.value.retry_after <= 1
    assert opened.source.loads == 1


async def test_settled_content_lives_by_its_own_freshness(opened: Opened) -> None:
    """In a window a past season is fresh for an hour, another for half a second; a bump replaces both."""
    opened.source.matches = [datetime.now(UTC)]
    seasons = opened.store[opened.league.seasons]
    past, running = await seasons.page(season="2025"), await seasons.page(season="2026")
    assert past is not None
    assert running is not None
    assert (past.fresh, past.stale) == (3_600_000, 60_000)
    assert (running.fresh, running.stale) == (500, 300_000)
    assert past.json() == {"season": "2025", "points": 1}
    opened.source.points = 2
    refs = [opened.league.seasons.at(season=each) for each in ("2025", "2026")]
    await opened.site.bump(*refs)
    corrected = await seasons.page(season="2025")
    assert corrected is not None
    assert (corrected.json()["points"], corrected.fresh) == (2, 3_600_000)
    assert corrected.number > past.number


async def test_a_missing_page_is_remembered(opened: Opened) -> None:
    """None from the loader is None for the caller, and the loader is not called again for `missing`."""
    live = opened.store[opened.league.live]
    assert await live.page(match_id="2000") is None
    assert await live.page(match_id="2000") is None


async def test_large_pages_are_stored_as_gzip(opened: Opened) -> None:
    """A page above the threshold is small in Redis, its ETag is weak, and its body is unchanged."""
    opened.source.pad = "goal " * 5000
    page = await opened.store[opened.league.table].page()
    assert page is not None
    assert page.gzipped
    assert page.etag.startswith(b'W/"')
    assert page.json()["pad"] == opened.source.pad
    assert await opened.store.call("STRLEN", opened.league.table.at().key) < 1000


async def test_a_head_has_the_version_without_the_payload(opened: Opened) -> None:
    """ETag and number of a page that is not in this process are read once; then the page itself is."""
    first = await opened.store[opened.league.results].page()
    assert first is not None
    cache_engine(opened.store[opened.league.results.cache]).drop_local(opened.league.results.at().key)
    head = await opened.store[opened.league.results].head(opened.league.results.at().key)
    assert head is not None
    assert (head.number, head.stamp) == (first.number, first.stamp)
    assert await opened.store[opened.league.results].head(opened.league.results.at().key) is None


def test_wrong_declarations_are_refused() -> None:
    """Missing windows, a user that is no field, and a prewarmed page without its fields are refused."""
    league, life = League("refused"), Freshness(fresh=MINUTE)
    unknown = Representation(private="user")
    bare: HttpCache[Source] = HttpCache(league.catalogue, "bare")
    with pytest.raises(InvalidDeclaration, match="windows="):
        bare.resource("bare:a", load_table, freshness=life, in_window=life, purpose="-")
    with pytest.raises(InvalidDeclaration, match="not one of its fields"):
        bare.resource("bare:b:{id}", load_live, freshness=life, representation=unknown, purpose="-")
    with pytest.raises(InvalidDeclaration, match="list its fields"):
        bare.resource("bare:c:{id}", load_live, freshness=life, prewarm=True, purpose="-")
    with pytest.raises(InvalidDeclaration, match="wait"):
        HttpCache(league.catalogue, "hasty", wait=SECOND * 0)
    with pytest.raises(InvalidDeclaration, match="rate"):
        HttpCache(league.catalogue, "slow", prewarm_rate=0)


async def test_a_site_without_a_source_says_so(server: Valkey) -> None:
    """Using a site on a store that was opened without its source says what is missing."""
    league = League(f"l{uuid4().hex[:8]}")
    async with keyspace.connect(server.url, league.catalogue) as store:
        with pytest.raises(MissingResource, match="resources="):
            await store[league.results].page()


async def test_overlapping_patterns_are_all_tracked(url: str) -> None:
    """The server refuses overlapping prefixes, yet both resources have local pages in either order."""
    name = f"l{uuid4().hex[:8]}"
    catalogue, life = Catalogue(name), Freshness(fresh=MINUTE)
    site: HttpCache[Source] = HttpCache(catalogue, name)
    longer = site.resource(f"{name}:live:{{match_id}}", load_live, freshness=life, purpose="-")
    shorter = site.resource(f"{name}:live", load_results, freshness=life, purpose="-")
    source = Source(1)
    async with keyspace.connect(url, catalogue, resources={site: source}) as store:
        opened = store[site]
        targets = (longer.at(match_id="1"), shorter.at())
        for points in (1, 2):
            source.points = points
            await opened.bump(*targets)
            for target in targets:
                resource = store[target.resource]
                await store.call("GET", target.key)
                await resource.page(**target.fields)
                await resource.page(**target.fields)
                local = resource.peek(target.key)
                assert local is not None
                assert local.json()["points"] == points


async def test_a_stale_local_page_costs_no_round_trip(server: Valkey) -> None:
    """A thousand reads during a refresh send the server next to nothing."""
    league = League(f"l{uuid4().hex[:8]}")
    source = Source(1)
    async with connect_league(server.url, league, source) as store:
        brief = store[league.brief]
        await brief.page()
        await store[league.results].page()
        await store[league.results.cache].expire()
        await store[league.results].page()
        source.gate.clear()
        await store[league.results.cache].expire()
        await store[league.results].page()
        await eventually(lambda: source.loads >= 3)
        before = _commands(server)
        for _ in range(1000):
            page = await store[league.results].page()
            assert page is not None
        assert _commands(server) - before < 50
        source.gate.set()


def _commands(server: Valkey) -> int:
    stats = str(server.ask("INFO", "stats")).splitlines()
    return next(int(line.split(":")[1]) for line in stats if line.startswith("total_commands_processed"))


async def test_the_freshness_in_windows_can_be_shortened(opened: Opened) -> None:
    """Pages that are loaded from then on are fresh for so long, until it is as declared; never for longer."""
    opened.source.matches = [datetime.now(UTC) - MINUTE]
    table, target = opened.store[opened.league.table], opened.league.table.at()
    shorter = Freshness(fresh=SECOND / 5, stale=SECOND)

    async def fresh() -> int:
        await opened.site.bump(target)
        page = await table.page()
        assert page is not None
        return page.fresh

    await opened.store[opened.league.windows].now()
    assert await fresh() == 500
    table.set_in_window(shorter)
    assert await fresh() == 200
    for longer in (Freshness(fresh=SECOND), Freshness(fresh=SECOND / 5, stale=60 * MINUTE)):
        with pytest.raises(InvalidDeclaration, match="is longer than in_window"):
            table.set_in_window(longer)
    with pytest.raises(InvalidDeclaration, match="in_window=None"):
        opened.store[opened.league.results].set_in_window(shorter)
    table.set_in_window(None)
    assert await fresh() == 500
