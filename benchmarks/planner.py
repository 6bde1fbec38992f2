"""The planner's row: one tick over 10,000 dirty channels and 100,000 users with 50 subscriptions each.

Ours is a whole tick: the time and the dirty channels, their subscribers from PostgreSQL, states, high-water
marks and decisions for all users, and clearing the channels. No user is due, so that every round does the
same. The peer is the plain implementation on the same data: redis-py, with a round trip for each user's
state and two for each channel (its seq, its mark). All users would take it far longer than a round, so it
does as many as it can in one, and both figures are users per second; it is given its users, which we have to
find.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import cycle
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks import peers
from benchmarks.rows import Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, Store, connect
from ephemera.patterns.planner import ChannelState, Plan, Planner, Task, TickLimits, UserState
from ephemera.sql import upgrade

CHANNELS, USERS, SUBSCRIPTIONS = 10_000, 100_000, 50
SEQ, SEEN = 1000, 999

CATALOGUE, METADATA = Catalogue("bench-planner"), sa.MetaData()
FEED = Planner(
    CATALOGUE,
    METADATA,
    plans={
        "free": Plan(
            novelty=SUBSCRIPTIONS * SEQ,
            every=timedelta(days=2),
            active_within=timedelta(days=7),
            cooldown=timedelta(hours=1),
        )
    },
    limits=TickLimits(max_dirty_channels=CHANNELS),
)

_FILL = f"""
INSERT INTO channels SELECT 'c' || i, {SEQ}, now() FROM generate_series(0, {CHANNELS - 1}) i;
INSERT INTO user_stats (user_id, plan, last_clustered_at, last_active_at)
    SELECT 'u' || i, 'free', now(), now() FROM generate_series(0, {USERS - 1}) i;
INSERT INTO subscriptions SELECT 'u' || u, 'c' || ((u * 7 + k * {CHANNELS // SUBSCRIPTIONS}) % {CHANNELS})
    FROM generate_series(0, {USERS - 1}) u, generate_series(0, {SUBSCRIPTIONS - 1}) k"""

_TOGETHER = 50  # users whose marks one script writes
_MARKS = f"""
for place, key in ipairs(KEYS) do
  local user, marks = ARGV[1] + place - 1, {{}}
  for k = 0, {SUBSCRIPTIONS - 1} do
    marks[2 * k + 1] = 'c' .. (user * 7 + k * {CHANNELS // SUBSCRIPTIONS}) % {CHANNELS}
    marks[2 * k + 2] = ARGV[2]
  end
  redis.call('HSET', key, unpack(marks))
  redis.call('PEXPIRE', key, ARGV[3])
end"""
"""As SQL has the subscriptions. KEYS: the marks of users; ARGV: the first one's number, the seq, the life."""


def channels_of(user: int) -> Iterator[str]:
    """The subscriptions of a user, as SQL has them."""
    return (f"c{(user * 7 + k * (CHANNELS // SUBSCRIPTIONS)) % CHANNELS}" for k in range(SUBSCRIPTIONS))


async def _fill_sql(url: str) -> Any:
    """Five million subscriptions: no log of them, and their indexes when they are there, all at once."""
    engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    async with engine.begin() as sql:
        await sql.run_sync(upgrade, FEED)
        found = await sql.execute(
            sa.text("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'subscriptions'")
        )
        indexes = {name: definition for name, definition in found if not name.endswith("_pkey")}
        for statement in (
            "SET LOCAL session_replication_role = replica",  # no foreign keys to check
            "SET LOCAL maintenance_work_mem = '1GB'",
            "ALTER TABLE subscriptions SET UNLOGGED",
            "ALTER TABLE subscriptions DROP CONSTRAINT subscriptions_pkey",
            *(f"DROP INDEX {name}" for name in indexes),
            *_FILL.split(";"),
            "ALTER TABLE subscriptions ADD PRIMARY KEY (user_id, channel_id)",
            *indexes.values(),
        ):
            await sql.execute(sa.text(statement))
    async with engine.connect() as connection:
        sql = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await sql.execute(sa.text("VACUUM ANALYZE"))
    return engine


async def _fill_redis(store: Store) -> None:
    """Copies of everything, as ticks would have made them; the marks by the server itself."""
    now = round(time.time() * 1000)
    state = UserState("free", 1, 0, now, now, 0, now)
    life = FEED.keys.marks.lifetime.milliseconds or 0
    for start in range(0, USERS, _TOGETHER):
        users = range(start, start + _TOGETHER)
        await store[FEED.keys.users].put_many([({"user_id": f"u{user}"}, state) for user in users])
        keys = [FEED.keys.marks.key(user_id=f"u{user}") for user in users]
        await store.client("cache").call("EVAL", _MARKS, len(keys), *keys, start, SEEN, life)
    names = [{"channel_id": f"c{number}"} for number in range(CHANNELS)]
    await store[FEED.keys.channels].put_many([(name, ChannelState(SEQ, now)) for name in names])
    last = USERS - 1
    assert await store[FEED.keys.marks].get_all(user_id=f"u{last}") == dict.fromkeys(channels_of(last), SEEN)


@asynccontextmanager
async def our_tick(servers: Servers) -> AsyncIterator[Round]:
    """Whole ticks."""
    engine = await _fill_sql(servers.postgres.url)
    try:
        url, resources = f"{servers.valkey.url}?timeout=30", {FEED: engine}  # a busy server is not down
        async with connect(url, CATALOGUE, resources=resources) as store:
            await _fill_redis(store)
            planner = store[FEED]

            async def enqueue(tasks: Sequence[Task]) -> None:
                raise AssertionError(tasks)

            async def tick(_: float) -> float:
                await store[FEED.keys.dirty].add({f"c{number}": number + 1 for number in range(CHANNELS)})
                began = time.perf_counter()
                done = await planner.tick(enqueue)
                took = time.perf_counter() - began
                assert (done.mode, done.dirty, done.examined) == ("redis", CHANNELS, USERS), done
                return done.examined / took

            yield tick
    finally:
        await engine.dispose()


@asynccontextmanager
async def one_at_a_time(servers: Servers) -> AsyncIterator[Round]:
    """One round trip for each user and two for each of their channels, by redis-py."""
    async with peers.redis_py(servers.valkey) as client:
        users = cycle(range(USERS))

        async def pending(user: int) -> int:
            await client.hgetall(f"us:u{user}")
            new = 0
            for channel in channels_of(user):
                seq = await client.hget(f"ch:{channel}", "current_seq")
                seen = await client.hget(f"hwm:u{user}", channel)
                new += int(seq) - int(seen)
            return new

        async def some(seconds: float) -> float:
            began = time.perf_counter()
            done = 0
            while (took := time.perf_counter() - began) < seconds or not done:
                assert await pending(next(users)) == SUBSCRIPTIONS * (SEQ - SEEN)
                done += 1
            return done / took

        yield some


ROWS = (
    Row(
        "planner: a tick over 10,000 dirty channels, 100,000 users with 50 subscriptions",
        our_tick,
        {"redis-py, one round trip each": one_at_a_time},
        (Times(20),),
        unit="users/s",
        patience=120,  # a tick reads five million marks, on a busy machine too
    ),
)
