"""Traps I1, I5, I6, S9, S10 and C1: counters that never expire, count twice, or count the wrong thing."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import pytest

from ephemera.embedded import Valkey
from ephemera.keyspace import Store, connect
from ephemera.patterns.rate_limits import Claim, fixed_window
from tests.patterns.limit_fixtures import (
    BUCKET,
    CATALOGUE,
    DAY,
    FLOW,
    KINDS,
    LIMITS,
    SECONDLY,
    SLIDING_SECOND,
    TIERED_LOG,
    TIERED_WINDOW,
    WINDOW,
    new_subject,
)


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store for limits."""
    async with connect(server.url, CATALOGUE) as opened:
        yield opened


async def _milliseconds(store: Store) -> int:
    """The server's time."""
    seconds, micros = await store.call("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


# The naive implementations.


async def _incr_then_expire(store: Store, key: str, limit: int, lifetime: int) -> bool:
    """INCR, then EXPIRE after the first one."""
    counted = await store.call("INCR", key)
    if counted == 1:
        await store.call("EXPIRE", key, lifetime)
    return int(counted) <= limit


async def _by_the_second(store: Store, subject: str, limit: int = 5) -> bool:
    """A fixed window by the second, where a sliding window or a token bucket was meant."""
    key = f"naive:{subject}:{await _milliseconds(store) // 1000}"
    counted, _ = await asyncio.gather(store.call("INCR", key), store.call("EXPIRE", key, 120))
    return int(counted) <= limit


@pytest.mark.standalone("it scans the keys of one server")
async def test_i1_a_crash_leaves_no_counter_without_a_ttl(server: Valkey, store: Store) -> None:
    """Killed between INCR and EXPIRE, the naive counter stays forever; ours always have a TTL."""
    naive = f"naive:{new_subject()}"
    await store.call("INCR", naive)  # the process dies here
    await _incr_then_expire(store, naive, 5, 3600)
    assert await store.call("PTTL", naive) == -1

    subject, chance = new_subject(), random.Random(1)
    for _ in range(5):
        command = [sys.executable, "-m", "tests.traps.limit_killed", server.url, subject]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == b"counting\n"
            await asyncio.sleep(chance.uniform(0, 0.05))
            process.kill()
    found = [key async for key in _keys(store, f"limited:*:{subject}*")]
    assert len(found) >= 30
    assert all([0 < await store.call("PTTL", key) <= 86_400_000 * 1.1 for key in found])


async def _keys(store: Store, pattern: str) -> AsyncIterator[bytes]:
    cursor = b"0"
    while True:
        cursor, keys = await store.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        for key in keys:
            yield key
        if cursor == b"0":
            return


async def test_i1_a_lost_ttl_is_restored(store: Store) -> None:
    """The next unit restores a TTL that another program removed."""
    for rule in KINDS:
        claim = rule.on(new_subject())
        await store[LIMITS].check(claim)
        await store.call("PERSIST", claim.key)
        await store[LIMITS].check(claim)
        assert await store.call("PTTL", claim.key) > 0


async def _across_a_boundary(store: Store, check: Callable[[], Awaitable[bool]]) -> tuple[int, int]:
    """Check eight times just before and just after a second's end; return the admissions and the ms it took.

    It is repeated when the machine was slow, so that it took another second or more.
    """
    while True:
        while (began := await _milliseconds(store)) % 1000 < 900:
            await asyncio.sleep(0.002)
        before = await asyncio.gather(*(check() for _ in range(8)))
        filled = await _milliseconds(store)
        while await _milliseconds(store) // 1000 == began // 1000:
            await asyncio.sleep(0.002)
        after = await asyncio.gather(*(check() for _ in range(8)))
        took = await _milliseconds(store) - began
        if filled // 1000 == began // 1000 and took < 900:
            return sum(before) + sum(after), took
        await asyncio.sleep(1)  # until windows of a second are empty again


async def test_s9_a_sliding_window_slides(store: Store) -> None:
    """Counted by the second, ten requests pass in less than a second at a limit of five; sliding, five do."""
    limiter = store[LIMITS]
    who = new_subject()
    admitted, took = await _across_a_boundary(store, lambda: _by_the_second(store, who))
    assert admitted == 10
    assert took < 1000

    claim = SLIDING_SECOND.on(new_subject())

    async def ours() -> bool:
        return (await limiter.check(claim)).allowed

    assert (await _across_a_boundary(store, ours))[0] == 5


async def test_i5_fixed_windows_admit_twice_across_a_boundary_as_documented(store: Store) -> None:
    """Fixed windows admit the limit on both sides of a boundary, as documented; sliding ones do not."""
    limiter, claim = store[LIMITS], SECONDLY.on(new_subject())

    async def ours() -> bool:
        return (await limiter.check(claim)).allowed

    assert (await _across_a_boundary(store, ours))[0] == 10
    claim = SLIDING_SECOND.on(new_subject())
    assert (await _across_a_boundary(store, ours))[0] == 5
    assert "Up to twice the limit" in (fixed_window.__doc__ or "")


async def test_i6_windows_follow_the_servers_clock(server: Valkey, store: Store) -> None:
    """Two time zones count the naive key twice; a wrong clock or zone does not affect ours."""
    script = "import datetime; print(datetime.datetime.now().strftime('%Y%m%d%H'))"
    hours = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "TZ": zone},
            capture_output=True,
            check=True,
        ).stdout
        for zone in ("UTC", "Asia/Tokyo")
    }
    assert len(hours) == 2

    limiter, claim = store[LIMITS], WINDOW.on(new_subject())
    await limiter.check(claim)
    for wrong in (-40, -1, 1, 40):
        async with connect(server.url, CATALOGUE) as other:
            other[LIMITS]._clock.offset += wrong * 86_400_000  # days
            decision = await other[LIMITS].check(claim)
            assert decision._keys == (claim.key,)
    assert (await limiter.peek(claim)).remaining == 0
    day = datetime.fromtimestamp(await _milliseconds(store) // 1000, UTC).replace(hour=0, minute=0, second=0)
    assert claim.key.endswith(f":{int(day.timestamp())}")


async def test_i6_the_zone_of_a_process_is_not_in_its_keys(server: Valkey, store: Store) -> None:
    """Processes in two time zones count in one readable key, which names the UTC hour."""
    script = (
        "import asyncio, sys, tests.patterns.limit_fixtures as limits\n"
        "from ephemera.keyspace import connect\n"
        "async def main():\n"
        "    async with connect(sys.argv[1], limits.CATALOGUE) as store:\n"
        "        print((await store[limits.LIMITS].check(limits.READ.on(sys.argv[2]))).claims[0].key)\n"
        "asyncio.run(main())"
    )

    def key_in(zone: str, who: str) -> str:
        command = [sys.executable, "-c", script, server.url, who]
        environment = {**os.environ, "TZ": zone}
        return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout

    async def hour() -> str:
        return f"{datetime.fromtimestamp(await _milliseconds(store) / 1000, UTC):%Y%m%d%H}"

    while True:
        who, began = new_subject(), await hour()
        keys = [key_in(zone, who).strip() for zone in ("UTC", "Asia/Tokyo")]
        if await hour() == began:  # otherwise the hour changed
            break
    key = f"rate:{who}:/api/profiles:{began}"
    assert keys == [key, key]
    assert await store.call("GET", key) == b"2"


async def test_s10_denied_requests_take_nothing(store: Store) -> None:
    """The naive counter counts denied requests, so an upgrade does not help; ours admits the difference."""
    naive = f"naive:{new_subject()}"
    for _ in range(100):
        await _incr_then_expire(store, naive, 2, 3600)
    assert not await _incr_then_expire(store, naive, 6, 3600)

    for rule in (TIERED_LOG, TIERED_WINDOW):
        who, limiter = new_subject(), store[LIMITS]
        for _ in range(100):
            await limiter.check(rule["free"].on(who))
        assert [(await limiter.check(rule["pro"].on(who))).allowed for _ in range(5)] == [True] * 4 + [False]


async def _back_after(store: Store, milliseconds: int, check: Callable[[], Awaitable[bool]]) -> int:
    """Return the units that are back so long after all were taken, within one second of the server's clock.

    It is repeated when the machine was slow, so that another second had begun.
    """
    while True:
        while (began := await _milliseconds(store)) % 1000 > 300:
            await asyncio.sleep(0.002)
        while await check():
            pass
        taken = await _milliseconds(store)
        while await _milliseconds(store) <= taken + milliseconds:
            await asyncio.sleep(0.002)
        back = 0
        while await check():
            back += 1
        if await _milliseconds(store) // 1000 == began // 1000:
            return back


async def test_c1_a_bucket_refills_continuously(store: Store) -> None:
    """The naive bucket is empty until its window ends; ours refills at the declared rate."""
    limiter, who = store[LIMITS], new_subject()

    def checking(claim: Claim) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            return (await limiter.check(claim)).allowed

        return check

    # Twenty a second: in 200 ms, four.
    assert await _back_after(store, 200, lambda: _by_the_second(store, who)) == 0
    assert await _back_after(store, 200, checking(SECONDLY.on(who))) == 0  # nor in any fixed window
    assert await _back_after(store, 200, checking(FLOW.on(who))) >= 4

    # And never more than that.
    check, began, admitted = checking(FLOW.on(new_subject())), await _milliseconds(store), 0
    while admitted < 5 + 5:  # what it holds, and as much again as it comes back
        admitted += await check()
        await asyncio.sleep(0.001)
    assert admitted <= 5 + (await _milliseconds(store) + 1 - began) / 50 + 1

    # Five a day: the next one is back in a fifth of it, and all of them when it is over.
    claim, began_at = BUCKET.on(who), time.monotonic()
    while (decision := await limiter.check(claim)).allowed:
        pass
    retry_after, reset = decision.retry_after, decision.reset
    took = time.monotonic() - began_at
    assert retry_after is not None
    assert reset is not None
    assert DAY.total_seconds() / 5 - took - 1 < retry_after <= DAY.total_seconds() / 5
    assert DAY.total_seconds() - took - 1 < reset <= DAY.total_seconds()
