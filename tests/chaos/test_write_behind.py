"""Write-behind when flushers, Redis and PostgreSQL die: SQL has what was acknowledged, no more and no less.

The campaign of random kills is short by default. `EPHEMERA_FAULT_ROUNDS=1000` runs the long one, and
`EPHEMERA_FAULT_SEED` repeats one that failed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store, connect, embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import ConnectionFailed
from ephemera.patterns.write_behind import Flusher
from tests.chaos import flush_worker
from tests.chaos.flush_worker import CATALOGUE, COUNTED, NOTED, NOTES, PAGES, STEPS, Noted
from tests.chaos.replication import caught_up
from tests.patterns.write_behind_fixtures import sql_url
from tests.wire.conditions import answered

ROUNDS = int(os.environ.get("EPHEMERA_FAULT_ROUNDS", "8"))
SEED = int(os.environ.get("EPHEMERA_FAULT_SEED", "0")) or random.randrange(1, 10**6)
_PAGES = 5


@pytest.fixture
def durable() -> Iterator[Valkey]:
    """A server that loses nothing that it acknowledged."""
    with embedded.valkey(config={"appendonly": "yes", "appendfsync": "always"}) as running:
        yield running


@pytest.fixture
def sql_victim() -> Iterator[Postgres]:
    """A PostgreSQL for one test."""
    with embedded.postgres() as running:
        yield running


@asynccontextmanager
async def _prepared(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    engine = flush_worker.engine_of(sql_url(postgres))
    await flush_worker.prepare(engine)
    try:
        yield engine
    finally:
        await engine.dispose()


async def _hits(engine: AsyncEngine) -> dict[str, int]:
    async with engine.connect() as connection:
        rows = await connection.execute(sa.select(PAGES.c.page, PAGES.c.hits))
        return {row.page: row.hits for row in rows}


async def _numbers(engine: AsyncEngine) -> list[int]:
    async with engine.connect() as connection:
        found = await connection.execute(sa.select(NOTES.c.number).order_by(NOTES.c.number))
        return list(found.scalars())


async def _drain(store: Store, engine: AsyncEngine, kind: str, within: float = 60.0) -> None:
    """Flush until the backlog is empty."""
    source: Any = store[COUNTED] if kind == "counters" else store[NOTED]
    flusher = Flusher(
        source,
        flush_worker.sink_of(kind, engine),
        claim_timeout=flush_worker.CLAIM_TIMEOUT,
        write_delay=timedelta(0),
    )
    async with asyncio.timeout(within):
        while await source.backlog():
            await flusher.flush()
            await asyncio.sleep(0.02)  # a batch may be left to a flusher that is dead, for a while


async def _exit(process: BaseProcess) -> int | None:
    await asyncio.to_thread(process.join, 30)
    return process.exitcode


@pytest.mark.parametrize("step", STEPS)
async def test_a_flusher_killed_at_any_step_loses_and_doubles_nothing(
    server: Valkey, postgres: Postgres, step: str
) -> None:
    """Whatever a flusher had done when it died, the next one brings counters and records to SQL once."""
    async with _prepared(postgres) as engine, connect(server.url, CATALOGUE) as store:
        server.ask("FLUSHALL")
        for number in range(30):
            await store[COUNTED].add(page=f"page-{number % _PAGES}", hits=1)
        await store[NOTED].append(*(Noted(number, "before") for number in range(30)), partition_key="all")
        killed = [
            flush_worker.start(kind, server.url, sql_url(postgres), step) for kind in ("counters", "records")
        ]
        assert [await _exit(process) for process in killed] == [-9, -9]
        await _is_in_sql(engine, step)
        for number in range(30, 40):
            await store[COUNTED].add(page=f"page-{number % _PAGES}", hits=1)
            await store[NOTED].append(Noted(number, "after"), partition_key="all")
        for kind in ("counters", "records"):
            await _drain(store, engine, kind)
        assert await _hits(engine) == {f"page-{page}": 8 for page in range(_PAGES)}
        assert await _numbers(engine) == list(range(40))


async def _is_in_sql(engine: AsyncEngine, step: str) -> None:
    """Check that the flusher died at its step: batches are in SQL after the commit, and not before."""
    if STEPS.index(step) < STEPS.index("committing"):
        assert (await _hits(engine), await _numbers(engine)) == ({}, [])
        return
    async with asyncio.timeout(60):
        while not (await _hits(engine) and await _numbers(engine)):
            await asyncio.sleep(0.01)


class Campaign:
    """Writers, flushers and servers, and what was acknowledged."""

    def __init__(self, store: Store, redis: Valkey, postgres: Postgres) -> None:
        self.random = random.Random(SEED)
        self.acknowledged: Counter[str] = Counter()
        self.numbers: list[int] = []
        self._store = store
        self._servers = (redis, postgres)
        self._flushers: dict[str, list[BaseProcess]] = {
            kind: [self._start(kind), self._start(kind)] for kind in ("counters", "records")
        }

    async def round(self) -> None:
        """Write while another process dies; return when every write is acknowledged."""
        writing = asyncio.gather(*(self._write(number) for number in range(10)))
        await asyncio.sleep(self.random.uniform(0, 0.03))
        fate = self.random.random()
        if fate < 0.7:
            self._kill_a_flusher()
        else:
            server = self._servers[0 if fate < 0.87 else 1]
            await asyncio.to_thread(self._kill_and_restart, server)
        async with asyncio.timeout(60):
            await writing

    def end(self) -> None:
        """Stop the flushers."""
        for process in (each for both in self._flushers.values() for each in both):
            process.kill()
            process.join()

    async def _write(self, number: int) -> None:
        page, identity = f"page-{number % _PAGES}", f"{len(self.numbers)}-{number}"
        hits = self.random.randrange(1, 100)
        await self._retry(lambda: self._store[COUNTED].add(page=page, hits=hits, idempotency_key=identity))
        self.acknowledged[page] += hits
        mine = len(self.numbers)
        self.numbers.append(mine)
        note = Noted(mine, "a note")
        await self._retry(lambda: self._store[NOTED].append(note, idempotency_key=f"note-{mine}"))

    async def _retry(self, attempt: Any) -> None:
        """Retry until it is answered; the idempotency key makes it count once."""
        while True:
            try:
                await attempt()
            except ConnectionFailed:
                await asyncio.sleep(0.01)
            else:
                return

    def _kill_a_flusher(self) -> None:
        kind = self.random.choice(("counters", "records"))
        process = self._flushers[kind].pop(self.random.randrange(2))
        process.kill()
        process.join()
        self._flushers[kind].append(self._start(kind))

    @staticmethod
    def _kill_and_restart(server: Valkey | Postgres) -> None:
        server.kill()
        server.restart()

    def _start(self, kind: str) -> BaseProcess:
        return flush_worker.start(kind, self._servers[0].url, sql_url(self._servers[1]))


@pytest.mark.timeout(60 + 5 * ROUNDS)
async def test_random_kills_of_everything_keep_every_count_exact(
    durable: Valkey, sql_victim: Postgres
) -> None:
    """After any number of crashes SQL has exactly the acknowledged counters and records."""
    async with _prepared(sql_victim) as engine, connect(durable.url, CATALOGUE) as store:
        campaign = Campaign(store, durable, sql_victim)
        try:
            for _ in range(ROUNDS):
                await campaign.round()
        finally:
            campaign.end()
        await answered(lambda: store.call("PING"), within=60)  # its server may just have been killed
        for kind in ("counters", "records"):
            await _drain(store, engine, kind)
        assert await _hits(engine) == dict(campaign.acknowledged), f"seed {SEED}"
        assert await _numbers(engine) == list(range(len(campaign.numbers))), f"seed {SEED}"


async def test_redis_emptied_loses_nothing_that_was_flushed(victim: Valkey, postgres: Postgres) -> None:
    """What SQL has stays, and later additions are counted, under larger numbers."""
    async with _prepared(postgres) as engine, connect(victim.url, CATALOGUE) as store:
        for _ in range(3):
            await store[COUNTED].add(page="a", hits=5)
            await _drain(store, engine, "counters")
            await store.call("FLUSHALL")
        assert await _hits(engine) == {"a": 15}


@pytest.mark.parametrize(("settle", "in_sql"), [(0.0, 10), (1.0, 5)])
async def test_a_failover_that_loses_the_last_half_second(
    durable: Valkey, postgres: Postgres, settle: float, in_sql: int
) -> None:
    """A replica without the last half second takes over: only with `write_delay` no batch counts twice."""
    async with _prepared(postgres) as engine:
        with embedded.valkey(password=durable.password) as replica:
            replica.ask("REPLICAOF", "127.0.0.1", durable.port)
            async with connect(durable.url, CATALOGUE) as store:
                await store[COUNTED].add(page="a", hits=5)
                await caught_up(durable)

                async def dies(_batch: object) -> None:
                    await asyncio.to_thread(durable.kill)

                rest = timedelta(seconds=settle)
                flusher = Flusher(
                    store[COUNTED],
                    flush_worker.sink_of("counters", engine),
                    on_applied=dies,
                    write_delay=rest,
                    claim_timeout=rest + flush_worker.CLAIM_TIMEOUT,
                )
                if not settle:
                    replica.ask("REPLICAOF", "NO", "ONE")  # as a line that breaks
                flushing = asyncio.create_task(flusher.flush())
                if settle:
                    await asyncio.sleep(settle / 2)  # half of the rest after the seal, half before the write
                    replica.ask("REPLICAOF", "NO", "ONE")
                with pytest.raises(ConnectionFailed):
                    await flushing
            assert await _hits(engine) == {"a": 5}
            async with connect(replica.url, CATALOGUE) as store:
                await _drain(store, engine, "counters")
            assert await _hits(engine) == {"a": in_sql}
