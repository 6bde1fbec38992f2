"""Traps L1, L2, L5 and L9: the naive way fails, ours holds."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.keyspace import Store
from ephemera.web import PrewarmEndpoint
from tests.patterns.league_site import MINUTE, SECOND, League, Source, connect_league
from tests.web.http_cache_app import TOKEN, application, ask
from tests.wire.conditions import eventually


@pytest.fixture
def league() -> League:
    """A league of its own, whose readers wait for a page however busy the machine is."""
    return League(f"t{uuid4().hex[:8]}", wait=MINUTE)


@pytest.fixture
def source() -> Source:
    """What its loaders read."""
    return Source(1)


@pytest.fixture
async def store(server: Valkey, league: League, source: Source) -> AsyncIterator[Store]:
    """Its store."""
    async with connect_league(server.url, league, source) as opened:
        yield opened


@pytest.fixture
def emptied() -> Iterator[Valkey]:
    """A server that may lose everything."""
    with embedded.valkey() as running:
        yield running


async def test_l1_a_long_freshness_ends_at_the_opening(store: Store, league: League, source: Source) -> None:
    """With a match in five minutes, a naive TTL of ten outlives the opening; ours ends there."""
    source.matches = [datetime.now(UTC) + 5 * MINUTE]
    opens = source.matches[0].timestamp() * 1000

    naive = f"naive:{league.table.at().key}"
    await store.call("SET", naive, "table", "PX", 600_000)
    assert await store.call("PEXPIRETIME", naive) > opens + 200_000

    page = await store[league.table].page()
    assert page is not None
    assert page.made_at + page.fresh <= opens + 1
    source.points = 2
    windows: Any = store[league.windows]
    assert not windows.last_known().is_open
    windows.time_offset = 5 * MINUTE
    assert windows.last_known().is_open
    await eventually(lambda: store[league.table].peek(league.table.at().key) is None)
    await store[league.table].page()  # from before the opening, and renewed
    await eventually(lambda: source.loads == 2)
    fresh = await _points(store, league, 2)
    assert fresh.fresh == 500


async def test_l1_a_slow_load_does_not_carry_a_page_past_the_opening(
    store: Store, league: League, source: Source
) -> None:
    """A page whose load began before the opening and took a while is fresh until the opening only."""
    source.matches = [datetime.now(UTC) + MINUTE]
    site = store[league.site]
    source.gate.clear()
    loading = asyncio.create_task(site.bump(league.table.at(), league.results.at()))
    await eventually(lambda: source.loads == 2)
    await asyncio.sleep(0.5)  # what the load takes
    source.gate.set()
    await loading
    _, (_, fresh_until, *_) = msgspec.msgpack.decode(await store.call("GET", league.table.at().key))
    assert fresh_until <= source.matches[0].timestamp() * 1000 + 5


async def test_l1_an_unforeseen_opening_refreshes_older_pages(
    store: Store, league: League, source: Source
) -> None:
    """A page is stored for ten minutes, then a match is announced that has begun: the page is refreshed."""
    page = await store[league.table].page()
    assert page is not None
    assert page.fresh == 600_000
    source.matches, source.points = [datetime.now(UTC) + SECOND / 100], 2
    assert (await _points(store, league, 2)).fresh == 500


async def _points(store: Store, league: League, points: int) -> Any:
    """The table, once it has this many points."""
    async with asyncio.timeout(60):
        while True:
            page = await store[league.table].page()
            if page is not None and page.json()["points"] == points:
                return page
            await asyncio.sleep(0.001)


async def test_l1_the_same_on_a_rehearsed_match_day(store: Store, league: League, source: Source) -> None:
    """With the windows' time moved a day ahead, freshness is as it would be then."""
    source.matches = [datetime.now(UTC) + timedelta(days=1)]
    store[league.windows].time_offset = timedelta(days=1) - 3 * MINUTE
    page = await store[league.table].page()
    assert page is not None
    assert 170_000 < page.fresh <= 180_000
    store[league.windows].time_offset = timedelta(days=1)
    page = await store[league.live].page(match_id=1)
    assert page is not None
    assert (await store[league.windows].now()).is_open


async def test_l2_a_lost_counter_never_answers_304_for_other_content(
    emptied: Valkey, league: League, source: Source
) -> None:
    """After a flush a naive counter starts again and a client keeps the old table; ours gets the new."""
    async with connect_league(emptied.url, league, source) as store:
        app = application(league, store)

        naive_before = await store.call("INCR", "naive:version")
        first = await ask(app, "/table")
        await store.call("FLUSHALL")
        source.points = 2
        naive_after = await store.call("INCR", "naive:version")
        assert naive_before == naive_after  # the naive client would get 304 for another table

        polled = {"if-none-match": first.headers["etag"]}
        second = await ask(app, "/table", headers=polled)
        assert (second.status, b'"points":2' in second.body) == (200, True)
        assert second.headers["x-resource-version"] > first.headers["x-resource-version"]

        source.points = 1
        await store.call("FLUSHALL")
        third = await ask(app, "/table", headers=polled)
        assert third.status == 304  # the same content again has the same tag, and a version of its own
        assert third.headers["x-resource-version"] > second.headers["x-resource-version"]


async def test_l2_nor_when_the_server_is_replaced_by_an_empty_one(
    emptied: Valkey, league: League, source: Source
) -> None:
    """After SIGKILL without persistence, older ETags are compared with the current content."""
    async with connect_league(emptied.url, league, source) as store:
        app = application(league, store)
        first = await ask(app, "/results")
        emptied.kill()
        await asyncio.to_thread(emptied.restart)
        await eventually(lambda: store.client().up)
        source.points = 2
        await store[league.site].delete(league.results.at())
        second = await ask(app, "/results", headers={"if-none-match": first.headers["etag"]})
        assert second.status == 200
        assert second.headers["x-resource-version"] > first.headers["x-resource-version"]


async def test_l5_a_private_etag_is_worthless_to_another_user(
    store: Store, league: League, source: Source
) -> None:
    """By path and content alone a user gets another's page and its 304; ours belong to one user each."""
    app = application(league, store)
    source.picks = {"eve": "secret"}
    eve, ann, bob = [await ask(app, "/mine", headers={"x-user": user}) for user in ("eve", "ann", "bob")]
    await store.call("SET", naive := f"naive:{league.site.name}:/mine", eve.body, "PX", 60_000)
    assert b"secret" in await store.call("GET", naive)  # what everyone gets by the path alone
    assert b"secret" not in ann.body + bob.body
    naive_tags = {hashlib.sha256(answer.body).digest() for answer in (ann, bob)}
    assert (ann.body == bob.body, len(naive_tags)) == (True, 1)
    assert ann.headers["etag"] != bob.headers["etag"]
    crossed = await ask(app, "/mine", headers={"x-user": "bob", "if-none-match": ann.headers["etag"]})
    assert crossed.status == 200
    assert "private" in ann.headers["cache-control"]
    assert {"Cookie", "Authorization"} <= {each.strip() for each in ann.headers["vary"].split(",")}


async def test_l5_a_hostile_user_id_reaches_no_other_key(
    store: Store, league: League, source: Source
) -> None:
    """An id with the special characters of keys has a key and a page of its own."""
    source.picks = {"ann": "secret"}
    app = application(league, store)
    await ask(app, "/mine", headers={"x-user": "ann"})
    for hostile in ("ann}", "{ann}", "ann:", "*", "%61nn"):
        answer = await ask(app, "/mine", headers={"x-user": hostile})
        assert b"secret" not in answer.body


async def test_l9_the_prewarm_token_is_compared_in_constant_time(
    store: Store, league: League, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopping at the first difference reveals how far a guess is right; ours compares whole digests."""
    assert _naive_steps(TOKEN, "x" * 22) < _naive_steps(TOKEN, TOKEN[:10] + "x" * 12)

    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    app = application(league, store)
    wrong = ("", TOKEN[:-1], TOKEN + "x", "x" * 10_000, TOKEN.upper())
    for token in wrong:
        answer = await ask(app, "/prewarm", "POST", {"x-prewarm-token": token})
        assert answer.status == 403
        assert TOKEN.encode() not in answer.body
    assert (await ask(app, "/prewarm", "POST")).status == 403
    assert (await ask(app, "/prewarm", "POST", {"x-prewarm-token": TOKEN})).status == 202
    assert len(compared) == len(wrong) + 2
    assert {len(text) for pair in compared for text in pair} == {32}


def _naive_steps(token: str, guess: str) -> int:
    """How many characters a comparison reads that stops at the first difference."""
    return next((at for at, (one, other) in enumerate(zip(token, guess, strict=True), 1) if one != other), -1)


def test_l9_a_token_that_can_be_guessed_is_refused(league: League) -> None:
    """An empty or short token is refused when the endpoint is made."""
    with pytest.raises(ValueError, match="at least 16"):
        PrewarmEndpoint(league.site, "")
