"""OPS9: PostgreSQL connections and resident memory rose with load and did not come back.

SQLAlchemy's pool keeps the connections of its busiest moment. glibc kept the blocks of password checks, one
for each thread. The rest were prepared claims of limits, whose number is bounded for each rule.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ephemera import Catalogue
from ephemera.embedded import Postgres
from ephemera.patterns.jobs import sql_engine
from ephemera.patterns.rate_limits import RateLimits, sliding_window
from ephemera.patterns.rate_limits._claims import Claim
from ephemera.sql import ShrinkingPool
from ephemera_services.runtime import open_engine

_BACKEND = sa.text("SELECT pg_backend_pid()")


@asynccontextmanager
async def engine_of(
    postgres: Postgres, name: str, idle_timeout: float, **pool: object
) -> AsyncIterator[AsyncEngine]:
    """An engine whose connections have a name."""
    engine = create_async_engine(
        "postgresql+psycopg://" + postgres.database("test_ops9").partition("://")[2],
        poolclass=ShrinkingPool,
        idle_timeout=idle_timeout,
        connect_args={"application_name": name},
        **pool,
    )
    try:
        yield engine
    finally:
        await engine.dispose()


def sessions(postgres: Postgres, name: str) -> int:
    """How many connections with this name the server has."""
    sql = sa.create_engine("postgresql+psycopg://" + postgres.url.partition("://")[2], poolclass=sa.NullPool)
    with sql.connect() as connection:
        counted = sa.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
        return int(connection.execute(counted, {"name": name}).scalar_one())


async def use(engine: AsyncEngine, connections: int) -> list[int]:
    """Use this many connections at once; the backends of the server."""
    everyone = asyncio.Barrier(connections)

    async def one() -> int:
        async with engine.connect() as sql:
            backend = int((await sql.execute(_BACKEND)).scalar_one())
            await everyone.wait()
            return backend

    return await asyncio.gather(*(one() for _ in range(connections)))


async def until_open(postgres: Postgres, name: str, expected: int) -> None:
    """Wait until the server has this many connections with this name."""
    async with asyncio.timeout(30):
        while await asyncio.to_thread(sessions, postgres, name) != expected:
            await asyncio.sleep(0.05)


async def test_ops9_idle_connections_are_closed_and_opened_again(postgres: Postgres, key: str) -> None:
    """After a busy moment the server loses every connection, and the pool can be as busy again."""
    async with engine_of(postgres, key, 0.3, pool_size=6, max_overflow=0) as engine:
        for _ in range(2):
            assert len(set(await use(engine, 6))) == 6
            await until_open(postgres, key, 0)
            assert engine.sync_engine.pool.checkedin() == 0  # type: ignore[attr-defined]


async def test_ops9_a_quiet_time_uses_one_connection(postgres: Postgres, key: str) -> None:
    """The connection that was returned last is used first, so the surplus of a busy moment stays idle."""
    async with engine_of(postgres, key, 60.0, pool_size=6, max_overflow=0) as engine:
        backends = await use(engine, 6)
        used = {(await use(engine, 1))[0] for _ in range(12)}
        assert len(used) == 1
        assert used <= set(backends)


async def test_ops9_a_connection_in_use_is_never_closed(postgres: Postgres, key: str) -> None:
    """A transaction may take longer than the timeout, while the connections beside it are closed."""
    async with engine_of(postgres, key, 0.2, pool_size=3, max_overflow=0) as engine, engine.connect() as sql:
        backend = (await sql.execute(_BACKEND)).scalar_one()
        await use(engine, 2)
        await until_open(postgres, key, 1)
        assert (await sql.execute(_BACKEND)).scalar_one() == backend


async def test_ops9_the_settings_survive_dispose(postgres: Postgres, key: str) -> None:
    """The pool that replaces a disposed one closes idle connections as well."""
    async with engine_of(postgres, key, 0.2, pool_size=3) as engine:
        await use(engine, 3)
        await engine.dispose()
        await until_open(postgres, key, 0)
        await use(engine, 3)
        await until_open(postgres, key, 0)


async def test_ops9_every_engine_of_ours_shrinks(postgres: Postgres) -> None:
    """The engines of services, of jobs and of their workers have such a pool."""
    jobs = sql_engine(postgres.database("test_ops9"), pool_size=2)
    async with open_engine(postgres.database("test_ops9"), sa.MetaData()) as of_a_service:
        assert isinstance(of_a_service.sync_engine.pool, ShrinkingPool)
    assert isinstance(jobs.sync_engine.pool, ShrinkingPool)
    await jobs.dispose()


def test_ops9_claims_of_past_subjects_are_dropped() -> None:
    """However many subjects a limit has seen, a process keeps a bounded number of prepared claims."""
    rule = sliding_window("read", 100, per=timedelta(hours=1), key="read:{user}")
    RateLimits(Catalogue("ops9"), "ops9", rule)
    gc.collect()
    before = sum(type(each) is Claim for each in gc.get_objects())
    for number in range(10_000):
        rule.on(str(number))
    gc.collect()
    assert sum(type(each) is Claim for each in gc.get_objects()) - before <= 2048


_CHECKS = """
import asyncio, os, re, sys
from ephemera_services.runtime import Passwords, tune_malloc

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024

async def main():
    passwords = Passwords(8)
    stored = await passwords.hash("correct horse battery")
    before = resident()
    for _ in range(3):
        await asyncio.gather(*(passwords.verify("wrong horse battery", stored) for _ in range(12)))
    print(resident() - before)
    passwords.close()

tune_malloc()
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_ops9_password_checks_give_their_memory_back() -> None:
    """After many checks by several threads a process is as large as before, less than one block of 8 MiB."""
    done = subprocess.run([sys.executable, "-c", _CHECKS], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 6
