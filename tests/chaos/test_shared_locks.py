"""Semaphores and read-write locks when processes and servers die, hang and recover."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ephemera import Catalogue, Store, connect, embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import LockLost, OutcomeUnknown
from ephemera.patterns.locks import ReadWriteLocks, Semaphores
from tests.chaos.lock_worker import GUARD, READ, WRITE
from tests.chaos.test_locks import Workers, line_of, rest_of, workers
from tests.patterns.lock_fixtures import (
    BRIEF_POOL,
    BRIEF_SHELF,
    CATALOGUE,
    KEPT_POOL,
    POOL,
    SHELF,
    free,
    queued,
    until,
)
from tests.wire.conditions import answered

__all__ = ["workers"]

# What the killed or stopped processes hold, for the test itself: with leases that do not end.
PATIENT = Catalogue("test-shared-locks-patient")
_MINUTE = timedelta(minutes=1)
NEXT_POOL, NEXT_BRIEF_POOL = (
    Semaphores(PATIENT, each.keyspace.pattern, permits=each.permits, lease=_MINUTE, purpose="Held for longer")
    for each in (KEPT_POOL, BRIEF_POOL)
)
NEXT_SHELF = ReadWriteLocks(PATIENT, BRIEF_SHELF.keyspace.pattern, lease=_MINUTE, purpose="Held for longer")


async def test_a_killed_holders_permit_is_free_when_its_lease_ends(
    server: Valkey, workers: Workers, key: str
) -> None:
    """After SIGKILL of a holder, a waiter gets its permit; the other holder keeps its own."""
    one, other = (workers.start("hold", key, "permit") for _ in range(2))
    fences = [int(await line_of(each)) for each in (one, other)]
    async with connect(server.url, PATIENT) as store:
        waiting = asyncio.create_task(_permit(store, key))
        await queued(store, NEXT_POOL, 1, name=key)
        one.kill()
        permit, fence = await asyncio.wait_for(waiting, 60)
        assert fence > max(fences)
        [left] = await store[NEXT_POOL].holders(name=key)
        assert left.name.endswith(f"/{other.pid}")
        assert {permit, left.permit} == {0, 1}


async def _permit(store: Store, name: str) -> tuple[int | None, int]:
    async with store[NEXT_POOL].hold(name=name) as held:
        return held.permit, held.fence


async def test_a_killed_writer_lets_readers_in_when_its_lease_ends(
    server: Valkey, workers: Workers, key: str
) -> None:
    """After SIGKILL of a writer, the readers that wait for it read together when its lease ends."""
    process = workers.start("hold", key, "write")
    fence = int(await line_of(process))
    together = asyncio.Barrier(3)

    async def read(store: Store) -> int:
        async with store[NEXT_SHELF].read(name=key) as held:
            await asyncio.wait_for(together.wait(), 60)
            return held.fence

    async with connect(server.url, PATIENT) as store:
        readers = [asyncio.create_task(read(store)) for _ in range(3)]
        await queued(store, NEXT_SHELF, 3, name=key)
        process.kill()
        fences = await asyncio.wait_for(asyncio.gather(*readers), 60)
    assert min(fences) > fence


async def test_a_paused_holder_of_a_permit_is_refused_and_cancelled(
    server: Valkey, postgres: Postgres, workers: Workers, key: str, tmp_path: Path
) -> None:
    """A holder that was stopped past its lease is refused by SQL; the next holder of its permit is not."""
    flag = tmp_path / "go"
    process = workers.start("write_late", key, flag, "brief_permit")
    fence = int(await line_of(process))
    os.kill(process.pid, signal.SIGSTOP)
    async with connect(server.url, PATIENT) as store:
        pool = store[NEXT_BRIEF_POOL]

        async def is_free() -> bool:
            return not await pool.holders(name=key)

        await until(is_free)
        async with pool.hold(name=key) as held:
            assert (held.permit, held.fence > fence) == (0, True)
            async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as sql:
                cursor = await sql.execute(GUARD.pyformat, GUARD.values(held))
                GUARD.admit(held, await cursor.fetchone())
                flag.touch()
                os.kill(process.pid, signal.SIGCONT)
                assert await line_of(process) == "refused"
            assert [each.fence for each in await pool.holders(name=key)] == [held.fence]


async def _kill_some(doomed: list[subprocess.Popen[str]], others: list[subprocess.Popen[str]]) -> list[str]:
    """Kill processes at random moments once all are running; return what all of them reported."""
    chance = random.Random(11)
    for process in (*doomed, *others):
        assert await line_of(process) == "ready"
    for process in doomed:
        await asyncio.sleep(chance.uniform(0.05, 0.3))  # a random moment
        process.kill()
    said = await asyncio.gather(*map(rest_of, (*doomed, *others)))
    assert [process.returncode for process in others] == [0] * len(others)
    return [line for out in said for line in out.splitlines(keepends=True) if line.endswith("\n")]


async def test_killed_holders_of_permits_do_not_stop_the_others(
    postgres: Postgres, workers: Workers, key: str
) -> None:
    """While processes are killed, each permit has one holder: no step on the row of a permit is lost."""
    doomed = [workers.start("count_permits", key, 100_000) for _ in range(2)]
    others = [workers.start("count_permits", key, 30) for _ in range(2)]
    reported = [int(line) for line in await _kill_some(doomed, others)]
    assert set(reported) == {0, 1}
    with psycopg.connect(postgres.url) as sql:
        rows = [sql.execute(READ, (f"{key}#{permit}",)).fetchone() for permit in (0, 1)]
    totals = [row[0] for row in rows if row is not None]
    # A killed process may have committed one step that it could not report.
    assert len(reported) <= sum(totals) <= len(reported) + len(doomed)


async def test_readers_in_other_processes_see_no_half_of_a_change(
    postgres: Postgres, workers: Workers, key: str
) -> None:
    """While readers are killed, two rows that writers change one after the other are the same to readers."""
    with psycopg.connect(postgres.url, autocommit=True) as sql:
        for row in "ab":
            sql.execute(WRITE, {"name": f"{key}-{row}", "total": 0, "fence": 0})
    doomed = [workers.start("read_both", key, 100_000)]
    others = [workers.start(mode, key, 30) for mode in ("read_both", "write_both", "write_both")]
    reported = [line.strip() for line in await _kill_some(doomed, others)]
    fences = [int(line) for line in reported if line.isdigit()]
    assert len(set(fences)) == 60
    assert {line for line in reported if not line.isdigit()} == {"same"}
    with psycopg.connect(postgres.url) as sql:
        assert sql.execute(READ, (f"{key}-a",)).fetchone() == (60,)


async def test_a_hung_server_ends_the_blocks_before_the_lease_can(victim: Valkey) -> None:
    """Holders that cannot renew are cancelled, before their leases could end."""
    async with connect(victim.url, CATALOGUE) as store:
        entered = asyncio.Barrier(3)

        async def work(block: Any) -> None:
            async with block as held:
                assert held.remaining < 0.96 * 0.6
                await entered.wait()
                await asyncio.Event().wait()

        blocks = (store[BRIEF_POOL].hold(name="hung"), store[BRIEF_SHELF].read(name="hung"))
        tasks = [asyncio.create_task(work(block)) for block in blocks]
        await entered.wait()
        victim.pause()
        for task in tasks:
            with pytest.raises(LockLost, match="no renewal was confirmed"):
                await asyncio.wait_for(task, 30)
        victim.resume()


async def test_a_failed_release_is_retried(tmp_path: Path) -> None:
    """Blocks that end while the server is down end normally; what they held is free once it is back."""
    config = {"appendonly": "yes", "appendfsync": "always"}
    with embedded.valkey(data=tmp_path, config=config) as durable:
        async with connect(durable.url, CATALOGUE) as store:
            async with store[POOL].hold(name="left"), store[SHELF].write(name="left"):
                await asyncio.to_thread(durable.kill)
            await asyncio.to_thread(durable.restart)
            await answered(lambda: store.call("PING"))
            await free(store, POOL, name="left")
            await free(store, SHELF, name="left")
            assert await store[POOL.fences].exists(name="left")


async def test_what_was_acquired_without_a_reply_is_released(victim: Valkey) -> None:
    """A permit that the server granted after the caller timed out does not stay taken for its lease."""
    async with connect(victim.url, CATALOGUE) as store:
        async with store[POOL].hold(name="unanswered"):
            pass  # the server knows the script
        victim.pause()
        with pytest.raises(OutcomeUnknown):
            async with store[POOL].hold(name="unanswered"):
                pass
        victim.resume()
        await answered(lambda: store.call("PING"))
        await free(store, POOL, name="unanswered")
