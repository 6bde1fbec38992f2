"""Locks when processes and servers die, hang and recover: one holder at a time, and SQL decides."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ephemera import Catalogue, Store, connect, embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import ConnectionFailed, LockLost, OutcomeUnknown, Unavailable
from ephemera.patterns.locks import HeldLock, Locks
from tests.chaos.lock_worker import GUARD, READ, TABLE, WRITE
from tests.patterns.lock_fixtures import BRIEF, CATALOGUE, LOCKS, free, queued
from tests.wire.conditions import answered

_LEASE = 0.6  # seconds, of BRIEF

# The lock that the killed or stopped processes hold, for the test itself: with a lease that does not end.
PATIENT = Catalogue("test-locks-patient")
NEXT = Locks(
    PATIENT, BRIEF.keyspace.pattern, lease=timedelta(seconds=30), purpose="The same, held for longer"
)


class Workers:
    """Processes that hold locks; all of them end with the test."""

    def __init__(self, redis: str, postgres: str) -> None:
        self._urls = (redis, postgres)
        self._running = ExitStack()

    def start(self, mode: str, *rest: object) -> subprocess.Popen[str]:
        """Start a process."""
        command = [sys.executable, "-m", "tests.chaos.lock_worker", mode, *self._urls, *map(str, rest)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._running.callback(self._end, process)
        return process

    def close(self) -> None:
        """End them all."""
        self._running.close()

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()


@pytest.fixture
def workers(server: Valkey, postgres: Postgres) -> Iterator[Workers]:
    """Processes on the shared servers."""
    with psycopg.connect(postgres.url, autocommit=True) as sql:
        sql.execute(GUARD.table)
        sql.execute(TABLE)
    workers = Workers(f"{server.url}?timeout=2&connect_timeout=10", postgres.url)
    yield workers
    workers.close()


async def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a process reports."""
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await asyncio.to_thread(process.stdout.readline)).strip()


async def rest_of(process: subprocess.Popen[str]) -> str:
    """The remaining output of a process; `communicate` would miss what `readline` has buffered."""
    assert process.stdout is not None
    said = await asyncio.to_thread(process.stdout.read)
    process.wait()
    return said


@asynccontextmanager
async def _store(server: Valkey) -> AsyncIterator[Store]:
    async with connect(server.url, CATALOGUE) as store:
        yield store


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _forever() -> None:
    await asyncio.Event().wait()


async def test_a_killed_holders_lock_is_free_when_its_lease_ends(
    server: Valkey, workers: Workers, key: str
) -> None:
    """After SIGKILL of its holder, a waiter acquires the lock when the lease ends, with a larger fence."""
    process = workers.start("hold", key)
    fence = int(await line_of(process))
    async with connect(server.url, PATIENT) as store:
        waiting = asyncio.create_task(_next_fence(store, key, NEXT))
        await queued(store, NEXT, 1, name=key)
        process.kill()
        killed = _now()
        assert await waiting > fence
        assert _now() - killed < 2 * _LEASE + 15


async def _next_fence(store: Store, name: str, locks: Locks = BRIEF) -> int:
    async with store[locks].hold(name=name) as held:
        return held.fence


async def test_a_paused_holder_is_cancelled_when_it_resumes(
    server: Valkey, workers: Workers, key: str
) -> None:
    """A holder that was stopped past its lease gets `LockLost` when it resumes."""
    process = workers.start("hold", key)
    fence = int(await line_of(process))
    os.kill(process.pid, signal.SIGSTOP)
    async with connect(server.url, PATIENT) as store, store[NEXT].hold(name=key, timeout=60) as held:
        assert held.fence > fence
        os.kill(process.pid, signal.SIGCONT)
        assert await line_of(process) == f"lost {fence}"
        assert await store[NEXT].holder(name=key) is not None


async def test_a_paused_holder_that_still_writes_is_refused(
    server: Valkey, postgres: Postgres, workers: Workers, key: str, tmp_path: Path
) -> None:
    """A write after the lease by a holder that cannot be cancelled is refused by SQL."""
    flag = tmp_path / "go"
    process = workers.start("write_late", key, flag)
    fence = int(await line_of(process))
    os.kill(process.pid, signal.SIGSTOP)
    async with connect(server.url, PATIENT) as store, store[NEXT].hold(name=key, timeout=60) as held:
        assert held.fence > fence
        async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as sql:
            await _write(sql, held, key, 7)
            flag.touch()
            os.kill(process.pid, signal.SIGCONT)
            assert await line_of(process) == "refused"
            assert await (await sql.execute(READ, (key,))).fetchone() == (7,)


async def _write(sql: psycopg.AsyncConnection[Any], held: HeldLock, name: str, total: int) -> None:
    async with sql.transaction():
        cursor = await sql.execute(GUARD.pyformat, GUARD.values(held))
        GUARD.admit(held, await cursor.fetchone())
        await sql.execute(WRITE, {"name": name, "total": total, "fence": held.fence})


async def test_eight_processes_exclude_each_other(postgres: Postgres, workers: Workers, key: str) -> None:
    """Of 8 x 60 read-and-write steps under one lock, none is lost or refused, and fences only grow."""
    processes = [workers.start("count", key, 60) for _ in range(8)]
    said = await asyncio.gather(*map(rest_of, processes))
    assert [process.returncode for process in processes] == [0] * 8
    fences = [[int(line) for line in out.split()[1:]] for out in said]
    assert all(each == sorted(set(each)) for each in fences)
    assert len({fence for each in fences for fence in each}) == 8 * 60
    assert _total(postgres, key) == 8 * 60


async def test_killed_holders_and_waiters_do_not_stop_the_others(
    postgres: Postgres, workers: Workers, key: str
) -> None:
    """While half of the processes are killed at random, the others continue; no committed step is lost."""
    chance = random.Random(11)
    doomed = [workers.start("count", key, 100_000) for _ in range(4)]
    others = [workers.start("count", key, 60) for _ in range(4)]
    for process in (*doomed, *others):
        assert await line_of(process) == "ready"
    for process in doomed:
        await asyncio.sleep(chance.uniform(0.05, 0.3))  # a random moment
        process.kill()
    said = await asyncio.gather(*map(rest_of, (*doomed, *others)))
    assert [process.returncode for process in others] == [0] * 4
    reported = sum(line.endswith("\n") for out in said for line in out.splitlines(keepends=True))
    # A killed process may have committed one step that it could not report.
    assert reported <= _total(postgres, key) <= reported + len(doomed)


def _total(postgres: Postgres, name: str) -> int:
    with psycopg.connect(postgres.url) as sql:
        row = sql.execute(READ, (name,)).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_hung_server_ends_the_block_before_the_lease_can(victim: Valkey) -> None:
    """A holder that cannot renew is cancelled before its lease could end; acquiring locks fails."""
    async with _store(victim) as store:
        began = _now()

        async def work() -> None:
            async with store[BRIEF].hold(name="hung") as held:
                assert held.remaining < 0.96 * _LEASE  # when it will be cancelled
                victim.pause()
                await _forever()

        with pytest.raises(LockLost, match="no renewal was confirmed"):
            await work()
        assert _now() - began < _LEASE + 3  # a busy machine may be late
        with pytest.raises(ConnectionFailed):
            await _next_fence(store, "hung")
        victim.resume()
        await answered(lambda: _next_fence(store, "hung"))


async def test_a_holder_is_cancelled_when_the_server_lost_its_data(victim: Valkey) -> None:
    """After a restart without data, the old holder is cancelled, and the next one's fence is larger."""
    async with _store(victim) as store:
        fences: list[int] = []

        async def work() -> None:
            async with store[BRIEF].hold(name="wiped") as held:
                fences.append(held.fence)
                await asyncio.to_thread(victim.kill)
                await asyncio.to_thread(victim.restart)
                await _forever()

        with pytest.raises(LockLost):
            await work()
        assert await store.client("queue").call("DBSIZE") == 0
        assert await _next_fence(store, "wiped") > fences[0]


async def test_acquiring_fails_at_once_when_the_server_is_down(victim: Valkey) -> None:
    """Neither an acquisition nor a waiter waits for a server that is down."""
    async with _store(victim) as store, _store(victim) as other:
        async with other[LOCKS].hold(name="down"):
            waiting = asyncio.create_task(_long(store))
            await queued(store, LOCKS, 1, name="down")
            await asyncio.to_thread(victim.kill)
            with pytest.raises(ConnectionFailed):
                await asyncio.wait_for(waiting, 60)
            began = _now()
            with pytest.raises(Unavailable):
                await _long(store)
            assert _now() - began < 3


async def _long(store: Store) -> None:
    async with store[LOCKS].hold(name="down"):
        pass


async def test_a_failed_release_is_retried(tmp_path: Path) -> None:
    """A block that ends while the server is down ends normally; its lock is free once the server is back."""
    config = {"appendonly": "yes", "appendfsync": "always"}
    with embedded.valkey(data=tmp_path, config=config) as durable:
        async with _store(durable) as store:
            async with store[LOCKS].hold(name="left"):
                await asyncio.to_thread(durable.kill)
            await asyncio.to_thread(durable.restart)
            await answered(lambda: store.call("PING"))
            await free(store, LOCKS, name="left")
            assert await store[LOCKS.fences].exists(name="left")


async def test_a_lock_whose_acquisition_got_no_reply_is_released(victim: Valkey) -> None:
    """A lock that the server granted after the caller timed out does not stay locked for its lease."""
    async with _store(victim) as store:
        await _next_fence(store, "unanswered")  # the server knows the script
        victim.pause()
        with pytest.raises(OutcomeUnknown):
            async with store[LOCKS].hold(name="unanswered"):
                pass
        victim.resume()
        await answered(lambda: store.call("PING"))
        await free(store, LOCKS, name="unanswered")
        async with store[LOCKS].hold(name="unanswered", timeout=1):
            pass
