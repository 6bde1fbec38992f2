"""A process that holds locks, to be killed, paused and resumed by a test.

Run as `python -m tests.chaos.lock_worker MODE REDIS_URL POSTGRES_URL NAME [FLAG_FILE | TIMES] [WHAT]`. It
prints a line when it has the lock, and another with the outcome.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from ephemera import Store, connect
from ephemera.errors import LockLost, StaleFencingToken
from ephemera.patterns.locks import FenceGuard
from tests.patterns.lock_fixtures import (
    BRIEF,
    BRIEF_POOL,
    BRIEF_SHELF,
    CATALOGUE,
    KEPT,
    KEPT_POOL,
    KEPT_SHELF,
)

GUARD = FenceGuard("fault_fences")
TABLE = (
    "CREATE TABLE IF NOT EXISTS fault_rows (name text PRIMARY KEY, total int NOT NULL, fence bigint NOT NULL)"
)
READ = "SELECT total FROM fault_rows WHERE name = %s"
WRITE = """\
INSERT INTO fault_rows (name, total, fence) VALUES (%(name)s, %(total)s, %(fence)s)
ON CONFLICT (name) DO UPDATE SET total = excluded.total, fence = excluded.fence"""


def _block(store: Store, name: str, what: str) -> Any:
    """What a process holds: a lock, a permit, or a read-write lock to write."""
    match what:
        case "permit":
            return store[KEPT_POOL].hold(name=name)
        case "brief_permit":
            return store[BRIEF_POOL].hold(name=name)
        case "write":
            return store[BRIEF_SHELF].write(name=name)
        case _:
            return store[BRIEF].hold(name=name)


async def hold(store: Store, _: str, name: str, what: str = "lock") -> None:
    """Hold it until the process is killed or it is lost."""
    try:
        async with _block(store, name, what) as held:
            report(held.fence)
            await asyncio.Event().wait()
    except LockLost as lost:
        report("lost", lost.fence)


async def write_late(store: Store, postgres: str, name: str, flag: str, what: str = "lock") -> None:
    """Hold it, and write once the flag exists, without ever awaiting: it cannot be cancelled."""
    with psycopg.connect(postgres, autocommit=True) as sql:
        try:
            async with _block(store, name, what) as held:
                report(held.fence)
                while not Path(flag).exists():
                    time.sleep(0.005)
                with sql.transaction():
                    row = sql.execute(GUARD.pyformat, GUARD.values(held)).fetchone()
                    GUARD.admit(held, row)
                    sql.execute(WRITE, {"name": name, "total": -1, "fence": held.fence})
                report("written")
        except StaleFencingToken:
            report("refused")


async def count(store: Store, postgres: str, name: str, times: str) -> None:
    """Add one to a row this many times, by reading and writing it in two steps."""
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as sql:
        report("ready")
        for _ in range(int(times)):
            async with store[KEPT].hold(name=name) as held, sql.transaction():
                passed = await sql.execute(GUARD.pyformat, GUARD.values(held))
                GUARD.admit(held, await passed.fetchone())
                row = await (await sql.execute(READ, (name,))).fetchone()
                total = row[0] if row else 0
                await sql.execute(WRITE, {"name": name, "total": total + 1, "fence": held.fence})
            report(held.fence)


async def count_permits(store: Store, postgres: str, name: str, times: str) -> None:
    """Add one to the row of the permit it has this many times, by reading and writing it in two steps."""
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as sql:
        report("ready")
        for _ in range(int(times)):
            async with store[KEPT_POOL].hold(name=name) as held, sql.transaction():
                passed = await sql.execute(GUARD.pyformat, GUARD.values(held))
                GUARD.admit(held, await passed.fetchone())
                row = await (await sql.execute(READ, (f"{name}#{held.permit}",))).fetchone()
                total = row[0] if row else 0
                written = {"name": f"{name}#{held.permit}", "total": total + 1, "fence": held.fence}
                await sql.execute(WRITE, written)
            report(held.permit)


async def write_both(store: Store, postgres: str, name: str, times: str) -> None:
    """Add one to two rows this many times, in transactions of their own: between them, they differ."""
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as sql:
        report("ready")
        for _ in range(int(times)):
            async with store[KEPT_SHELF].write(name=name) as held:
                for row in (f"{name}-a", f"{name}-b"):
                    found = await (await sql.execute(READ, (row,))).fetchone()
                    total = found[0] if found else 0
                    await sql.execute(WRITE, {"name": row, "total": total + 1, "fence": held.fence})
            report(held.fence)


async def read_both(store: Store, postgres: str, name: str, times: str) -> None:
    """Read the two rows this many times; report those that differ."""
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as sql:
        report("ready")
        for _ in range(int(times)):
            async with store[KEPT_SHELF].read(name=name):
                one, other = [
                    await (await sql.execute(READ, (f"{name}-{each}",))).fetchone() for each in "ab"
                ]
            report("same" if one == other else f"{one} is not {other}")


def report(*words: object) -> None:
    """Report to the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(mode: str, redis: str, *rest: Any) -> None:
    """Run the mode of the command line."""
    modes = (hold, write_late, count, count_permits, write_both, read_both)
    work: Any = {each.__name__: each for each in modes}[mode]
    async with connect(redis, CATALOGUE) as store:
        await work(store, *rest)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
