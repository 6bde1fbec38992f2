"""A process that holds locks, to be killed, paused and resumed by a test.

Run as `python -m tests.chaos.lock_worker MODE REDIS_URL POSTGRES_URL NAME [FLAG_FILE | TIMES]`. It prints a
line when it has the lock, and another with the outcome.
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
from tests.patterns.lock_fixtures import BRIEF, CATALOGUE, KEPT

GUARD = FenceGuard("fault_fences")
TABLE = (
    "CREATE TABLE IF NOT EXISTS fault_rows (name text PRIMARY KEY, total int NOT NULL, fence bigint NOT NULL)"
)
READ = "SELECT total FROM fault_rows WHERE name = %s"
WRITE = """\
INSERT INTO fault_rows (name, total, fence) VALUES (%(name)s, %(total)s, %(fence)s)
ON CONFLICT (name) DO UPDATE SET total = excluded.total, fence = excluded.fence"""


async def hold(store: Store, _: str, name: str) -> None:
    """Hold the lock until the process is killed or the lock is lost."""
    try:
        async with store[BRIEF].hold(name=name) as held:
            report(held.fence)
            await asyncio.Event().wait()
    except LockLost as lost:
        report("lost", lost.fence)


async def write_late(store: Store, postgres: str, name: str, flag: str) -> None:
    """Hold the lock, and write once the flag exists, without ever awaiting: it cannot be cancelled."""
    with psycopg.connect(postgres, autocommit=True) as sql:
        try:
            async with store[BRIEF].hold(name=name) as held:
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
    """Add one to a row so many times, by reading and writing it in two steps."""
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


def report(*words: object) -> None:
    """Report to the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(mode: str, redis: str, *rest: Any) -> None:
    """Run the mode of the command line."""
    work: Any = {"hold": hold, "write_late": write_late, "count": count}[mode]
    async with connect(redis, CATALOGUE) as store:
        await work(store, *rest)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
