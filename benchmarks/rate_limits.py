"""The limits' rows: one check by each algorithm, three rules over three subjects, and a denial known already.

The peers are limits 5, throttled-py 3 and redis-py-kit 1 on asyncio, each on the client it is fastest with,
as measured: limits on valkey-py, whose parser in C (libvalkey) makes no measurable difference, and the others
on redis-py without a socket timeout. All count in Lua, as we do. A row has every algorithm of a peer that
answers the same question; theirs are approximations where noted, and a log has room for 1,000 calls. Subjects
come from a thousand users in turn, and no limit is reached but in the last row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from itertools import cycle
from typing import Any

from benchmarks import peers
from benchmarks.load import Tasks
from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers
from ephemera.keyspace import Catalogue, connect
from ephemera.patterns.rate_limits import (
    BoundRateLimits,
    RateLimits,
    Rule,
    fixed_window,
    sliding_window,
    token_bucket,
)

_TASKS = 50
_MINUTE = timedelta(minutes=1)
_PLENTY = 1_000_000
"""A limit per minute that a round stays below for each of the users."""

CATALOGUE = Catalogue("bench-rate-limits")
FIXED = fixed_window("fixed", _PLENTY, per=_MINUTE)
SLIDING = sliding_window("sliding", _PLENTY, per=_MINUTE)
BUCKET = token_bucket("bucket", _PLENTY, per=_MINUTE)
ORGANIZATION = fixed_window("organization", 100 * _PLENTY, per=_MINUTE)
ADDRESS = fixed_window("address", _PLENTY, per=_MINUTE)
STRICT = fixed_window("strict", 1, per=timedelta(days=1))
LIMITS = RateLimits(CATALOGUE, "bench:limit", FIXED, SLIDING, BUCKET, ORGANIZATION, ADDRESS, STRICT)


def users() -> cycle[str]:
    """A thousand users, again and again."""
    return cycle([f"user-{number}" for number in range(1000)])


def one(rule: Rule) -> Opener:
    """Our check of one rule."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with connect(servers.valkey.url, CATALOGUE) as store:
            limiter, subjects = store[LIMITS], users()
            _admitted((await limiter.check(rule.on("first"))).allowed)

            async def work(count: int) -> None:
                for _ in range(count):
                    await limiter.check(rule.on(next(subjects)))

            yield Tasks(_TASKS, work)

    return opened


@asynccontextmanager
async def three(servers: Servers) -> AsyncIterator[Round]:
    """Our check of a user, an organization and an address, each with its own rule."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        limiter, subjects = store[LIMITS], users()
        first = (FIXED.on("first"), ORGANIZATION.on("acme"), ADDRESS.on("192.0.2.1"))
        _admitted((await limiter.check(*first)).allowed)

        async def work(count: int) -> None:
            for _ in range(count):
                user = next(subjects)
                await limiter.check(FIXED.on(user), ORGANIZATION.on("acme"), ADDRESS.on(user))

        yield Tasks(_TASKS, work)


@asynccontextmanager
async def denied(servers: Servers) -> AsyncIterator[Round]:
    """Our check of a subject whose denial is remembered."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        limiter = store[LIMITS]
        await _until_remembered(limiter)

        async def work(count: int) -> None:
            for _ in range(count):
                await limiter.check(STRICT.on("attacker"))

        yield Tasks(_TASKS, work)


async def _until_remembered(limiter: BoundRateLimits) -> None:
    decision = await limiter.check(STRICT.on("attacker"))
    while decision.source != "memory":
        decision = await limiter.check(STRICT.on("attacker"))
    _admitted(not decision.allowed)


def limits_of(strategy: str, *, times: int = 1, amount: int = _PLENTY) -> Opener:
    """A check of the library limits, or this many in turn."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        limits, aio = import_module("limits"), import_module("limits.aio")
        storage = aio.storage.RedisStorage(f"async+{servers.valkey.url}", implementation="valkey")
        hit = getattr(aio.strategies, strategy)(storage).hit
        item = limits.RateLimitItemPerMinute(amount)
        _admitted(await hit(item, "first", strategy))
        yield Tasks(_TASKS, _in_turn(lambda user: hit(item, user), times))

    return opened


def throttled_of(using: str, *, times: int = 1, amount: int = _PLENTY) -> Opener:
    """A check of throttled-py, or this many in turn."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        library = import_module("throttled.asyncio")
        options = {"CONNECTION_POOL_KWARGS": {"socket_timeout": None}}
        store = library.store.RedisStore(server=servers.valkey.url, options=options)
        quota = library.rate_limiter.per_min(amount, burst=amount)
        limit = library.Throttled(using=using, quota=quota, store=store).limit
        _admitted(not (await limit("first")).limited)
        yield Tasks(_TASKS, _in_turn(limit, times))

    return opened


def kit_of(limiter: str, **options: int) -> Opener:
    """A check of redis-py-kit."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with peers.redis_py_untimed(servers.valkey) as client:
            acquire = getattr(import_module("redis_kit"), limiter)(client, **options).acquire
            _admitted((await acquire("first")).allowed)
            yield Tasks(_TASKS, _in_turn(acquire, 1))

    return opened


def _in_turn(check: Callable[[str], Awaitable[Any]], times: int) -> Any:
    """Work that checks this many subjects for each operation, one after the other, as their users must."""
    subjects = users()

    async def work(count: int) -> None:
        for _ in range(count):
            for _ in range(times):
                await check(next(subjects))

    return work


def _admitted(allowed: bool) -> None:
    if not allowed:
        raise RuntimeError("a check came out otherwise than it should")


_FIXED = "FixedWindowRateLimiter"
_MOVING = "MovingWindowRateLimiter"
_COUNTER = "SlidingWindowCounterRateLimiter"

ROWS = (
    Row(
        "rate limits: fixed window",
        one(FIXED),
        {"limits": limits_of(_FIXED), "throttled": throttled_of("fixed_window")},
        (Times(6),),
    ),
    Row(
        "rate limits: sliding window",
        one(SLIDING),
        {
            "limits, a log": limits_of(_MOVING, amount=1000),
            "limits, approximate": limits_of(_COUNTER),
            "throttled, approximate": throttled_of("sliding_window"),
            "redis-py-kit, a log": kit_of("AsyncSlidingWindowLimiter", limit=1000),
        },
        (Times(6),),
    ),
    Row(
        "rate limits: token bucket (GCRA)",
        one(BUCKET),
        {
            "throttled": throttled_of("gcra"),
            "throttled, bucket": throttled_of("token_bucket"),
            "redis-py-kit": kit_of("AsyncTokenBucketLimiter", rate=_PLENTY // 60, capacity=_PLENTY),
        },
        (Times(6),),
    ),
    Row(
        "rate limits: three rules, three subjects",
        three,
        {"limits": limits_of(_FIXED, times=3), "throttled": throttled_of("fixed_window", times=3)},
        (Times(10),),
    ),
    Row(
        "rate limits: a denial that is remembered",
        denied,
        {"limits": limits_of(_FIXED, amount=1), "throttled": throttled_of("fixed_window", amount=1)},
        (Times(100),),
    ),
)
