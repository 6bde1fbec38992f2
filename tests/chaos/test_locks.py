"""Locks when processes and servers die, hang and come back: one holder at a time, SQL has the last word."""

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
from ephemera.patterns.locks import Held, Locks
from tests.chaos.lock_worker import GUARD, READ, TABLE, WRITE
from tests.patterns.locking import BRIEF, CATALOGUE, LOCKS, free, queued
from tests.wire.waiting import answered

_LEASE = 0.6  # seconds, of BRIEF

# The locks of those whom a test stops or kills, for the test itself: its own lease must not end by chance.
PATIENT = Catalogue("test-locks-patient")
NEXT = Locks(PATIENT, BRIEF.space.pattern, lease=timedelta(seconds=30), purpose="The same, held for longer")


class Workers:
    """Processes that hold locks; all of them end with the test."""

    def __init__(self, redis: str, postgres: str) -> None:
        self._urls = (redis, postgres)
        self._running = ExitStack()

    def start(self, mode: str, *rest: object) -> subprocess.Popen[str]:
        """One more."""
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


async def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await asyncio.to_thread(process.stdout.readline)).strip()


async def _rest(process: subprocess.Popen[str]) -> str:
    """All that a process says until it ends; `communicate` would miss what `readline` has read ahead."""
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


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_killed_holders_lock_is_free_when_its_lease_ends(
    server: Valkey, workers: Workers, key: str
) -> None:
    """After SIGKILL of its holder, one who waits has the lock when the lease ends, with a larger fence."""
    process = workers.start("hold", key)
    fence = int(await _line(process))
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


async def test_a_paused_holder_is_told_when_it_wakes(server: Valkey, workers: Workers, key: str) -> None:
    """A holder that was stopped past its lease learns of the loss when it goes on."""
    process = workers.start("hold", key)
    fence = int(await _line(process))
    os.kill(process.pid, signal.SIGSTOP)
    async with connect(server.url, PATIENT) as store, store[NEXT].hold(name=key, timeout=60) as held:
        assert held.fence > fence
        os.kill(process.pid, signal.SIGCONT)
        assert await _line(process) == f"lost {fence}"
        assert await store[NEXT].holder(name=key) is not None


async def test_a_paused_holder_that_writes_all_the_same_is_refused(
    server: Valkey, postgres: Postgres, workers: Workers, key: str, tmp_path: Path
) -> None:
    """What a holder that cannot be told writes after its lease is refused by SQL."""
    flag = tmp_path / "go"
    process = workers.start("write_late", key, flag)
    fence = int(await _line(process))
    os.kill(process.pid, signal.SIGSTOP)
    async with connect(server.url, PATIENT) as store, store[NEXT].hold(name=key, timeout=60) as held:
        assert held.fence > fence
        async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as sql:
            await _write(sql, held, key, 7)
            flag.touch()
            os.kill(process.pid, signal.SIGCONT)
            assert await _line(process) == "refused"
            assert await (await sql.execute(READ, (key,))).fetchone() == (7,)


async def _write(sql: psycopg.AsyncConnection[Any], held: Held, name: str, total: int) -> None:
    async with sql.transaction():
        cursor = await sql.execute(GUARD.pyformat, GUARD.values(held))
        GUARD.admit(held, await cursor.fetchone())
        await sql.execute(WRITE, {"name": name, "total": total, "fence": held.fence})


async def test_eight_processes_are_never_two_in_the_block(
    postgres: Postgres, workers: Workers, key: str
) -> None:
    """Of 8 x 60 read-and-write steps under one lock, none is lost or refused, and fences only grow."""
    processes = [workers.start("count", key, 60) for _ in range(8)]
    said = await asyncio.gather(*map(_rest, processes))
    assert [process.returncode for process in processes] == [0] * 8
    fences = [[int(line) for line in out.split()[1:]] for out in said]
    assert all(each == sorted(set(each)) for each in fences)
    assert len({fence for each in fences for fence in each}) == 8 * 60
    assert _total(postgres, key) == 8 * 60


async def test_processes_killed_in_the_block_and_in_the_queue_stop_nobody(
    postgres: Postgres, workers: Workers, key: str
) -> None:
    """While half of the processes are killed at random, the others go on, and no committed step is lost."""
    chance = random.Random(11)
    doomed = [workers.start("count", key, 100_000) for _ in range(4)]
    others = [workers.start("count", key, 60) for _ in range(4)]
    for process in (*doomed, *others):
        assert await _line(process) == "ready"
    for process in doomed:
        await asyncio.sleep(chance.uniform(0.05, 0.3))  # a random moment is the point of it
        process.kill()
    said = await asyncio.gather(*map(_rest, (*doomed, *others)))
    assert [process.returncode for process in others] == [0] * 4
    told = sum(line.endswith("\n") for out in said for line in out.splitlines(keepends=True))
    # A killed process may have committed one step that it could not tell of.
    assert told <= _total(postgres, key) <= told + len(doomed)


def _total(postgres: Postgres, name: str) -> int:
    with psycopg.connect(postgres.url) as sql:
        row = sql.execute(READ, (name,)).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_hung_server_ends_the_block_before_the_lease_can(victim: Valkey) -> None:
    """A holder that cannot renew is told before its lease could end; taking locks fails, soon or at once."""
    async with _store(victim) as store:
        began = _now()

        async def work() -> None:
            async with store[BRIEF].hold(name="hung") as held:
                assert held.remaining < 0.96 * _LEASE  # when it will be told
                victim.pause()
                await _for_ever()

        with pytest.raises(LockLost, match="no renewal was confirmed"):
            await work()
        assert _now() - began < _LEASE + 3  # a machine with much to do tells it late
        with pytest.raises(ConnectionFailed):
            await _next_fence(store, "hung")
        victim.resume()
        await answered(lambda: _next_fence(store, "hung"))


async def test_a_server_that_lost_its_data_tells_the_holder(victim: Valkey) -> None:
    """After a restart with nothing, the old holder is told, and the next one's fence is larger."""
    async with _store(victim) as store:
        fences: list[int] = []

        async def work() -> None:
            async with store[BRIEF].hold(name="wiped") as held:
                fences.append(held.fence)
                await asyncio.to_thread(victim.kill)
                await asyncio.to_thread(victim.restart)
                await _for_ever()

        with pytest.raises(LockLost):
            await work()
        assert await store.client("queue").call("DBSIZE") == 0
        assert await _next_fence(store, "wiped") > fences[0]


async def test_taking_a_lock_of_a_server_that_is_down_fails_at_once(victim: Valkey) -> None:
    """Nobody waits for a server that is away: not for a lock, nor in the queue of one."""
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


async def test_a_release_that_failed_is_repeated(tmp_path: Path) -> None:
    """A block that ends while the server is away ends well, and its lock is free once the server is back."""
    config = {"appendonly": "yes", "appendfsync": "always"}
    with embedded.valkey(data=tmp_path, config=config) as durable:
        async with _store(durable) as store:
            async with store[LOCKS].hold(name="left"):
                await asyncio.to_thread(durable.kill)
            await asyncio.to_thread(durable.restart)
            await answered(lambda: store.call("PING"))
            await free(store, LOCKS, name="left")
            assert await store[LOCKS.fences].exists(name="left")


async def test_a_lock_whose_taking_was_not_answered_is_given_back(victim: Valkey) -> None:
    """A lock that the server gave while nobody listened any more is not kept for its lease."""
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
