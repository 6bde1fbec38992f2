"""Jobs of all sorts while everything fails: each is done once, none early, none lost.

Plain, delayed, dated, unique and prioritised jobs, two schedules, and a kind that the running workers do not
know, all with the default number of attempts. Workers are killed and stopped, and single processes of them
are killed; the master of the queue fails over, Redis is flushed, PostgreSQL crashes, and a rolling deploy
brings the new kind. `EPHEMERA_CAMPAIGN=full` runs 1,000 jobs.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import connect, embedded
from ephemera.embedded import Postgres, Sentinel
from ephemera.errors import EphemeraError, ServerError
from ephemera.patterns.jobs import BoundJobs, CeleryDelivery, Job, JobRow, Unique, sql_engine
from ephemera.sql import migrate
from tests.chaos.mixed_jobs import EFFECTS, STEPS, Version
from tests.patterns.job_worker import Worker

FULL = os.environ.get("EPHEMERA_CAMPAIGN") == "full"
COUNT = 1000 if FULL else 100
PRIORITISED = max(60, COUNT // 5)  # many more than all workers take at once
FAULTS = 60 if FULL else 6
EVERY = 2.0  # seconds from one fault to the next
WORKERS = 4
WITHIN = 900 if FULL else 240  # seconds for everything
SPREAD = 40 if FULL else 8  # seconds over which jobs are delayed
TAKES_OVER = 20.0  # seconds that a fail-over may take
FAULT_NAMES = ("kill", "kill_child", "hang", "flush", "fail_over", "restart_sql", "deploy")
HUNG = 4.0  # seconds; longer than a lease
T = TypeVar("T")
NEW = Version("new")  # the producer is deployed first, the harder order


class Expected(NamedTuple):
    """A job that was accepted, and the moment before which it must not run."""

    job_id: str
    due: datetime | None = None
    priority: int = 0


class Producer:
    """Enqueues jobs of all sorts, again where SQL did not answer: a job's id makes that safe."""

    def __init__(self, jobs: BoundJobs, chance: random.Random) -> None:
        self._jobs = jobs
        self._chance = chance
        self.expected: list[Expected] = []
        self.unique: set[str] = set()

    async def prioritised(self, count: int) -> None:
        """Jobs of two priorities, alternately."""
        for number in range(count):
            await self._add(NEW.send, number, priority=9 * (number % 2))

    async def rest(self, count: int) -> None:
        """All the others, mixed."""
        sorts: list[Callable[[int], Awaitable[None]]]
        sorts = [self._plain, self._plain, self._delayed, self._dated, self._unique]
        for number in range(count):
            await sorts[number % len(sorts)](number)
            await asyncio.sleep(EVERY * FAULTS / 2 / count)  # over the first half of the faults

    async def new_kind(self, count: int) -> None:
        """Jobs of the kind that workers of the old version do not know."""
        for number in range(count):
            await self._add(NEW.archive, number)

    async def _plain(self, number: int) -> None:
        await self._add(NEW.send, number)

    async def _delayed(self, number: int) -> None:
        delay = timedelta(seconds=self._chance.uniform(0.5, SPREAD))
        await self._add(NEW.send, number, delay=delay)

    async def _dated(self, number: int) -> None:
        at = datetime.now(UTC) + timedelta(seconds=self._chance.uniform(0.5, SPREAD))
        await self._add(NEW.send, number, at=at)

    async def _unique(self, number: int) -> None:
        key = f"key-{number}"
        same = NEW.send.options(unique=Unique(key=key, period=timedelta(hours=1)))
        found = {(await _persist(lambda: self._jobs.enqueue(same, number))) for _ in range(3)}
        assert len(found) == 1, f"{key} was enqueued as {found}"
        self.unique |= found
        self.expected.append(Expected(found.pop()))

    async def _add(self, job: Job[..., Any], number: int, **options: Any) -> None:
        job_id = f"{job.kind}-{len(self.expected)}"
        chosen = job.options(job_id=job_id, **options)
        begun = await _persist(self.now)
        assert await _persist(lambda: self._jobs.enqueue(chosen, number)) == job_id
        due = options.get("at") or (begun + options["delay"] if "delay" in options else None)
        self.expected.append(Expected(job_id, due, options.get("priority", 0)))

    async def now(self) -> datetime:
        """The database's time."""
        async with self._jobs.engine.connect() as sql:
            now: datetime = (await sql.execute(select(func.clock_timestamp()))).scalar_one()
            return now


async def _persist(attempt: Callable[[], Awaitable[T]]) -> T:
    """Try again while SQL is down, as a caller would."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await attempt()
            except (DBAPIError, OSError, EphemeraError):
                await asyncio.sleep(0.1)


class Faults:
    """Everything that may happen to these workers and servers."""

    def __init__(
        self,
        engine: AsyncEngine,
        start: Callable[[str], Worker],
        sentinel: Sentinel,
        postgres: Postgres,
        chance: random.Random,
    ) -> None:
        self._engine, self._start, self._sentinel, self._postgres = engine, start, sentinel, postgres
        self._chance = chance
        self._version = "old"
        self.workers = [start("old") for _ in range(WORKERS)]
        self.injected: Counter[str] = Counter()

    async def inject_all(self) -> None:
        """Inject them one by one, each sort at least once; the deploy is in the middle."""
        kinds = [self.kill, self.kill_child, self.hang, self.flush, self.fail_over, self.restart_sql]
        chosen = kinds + self._chance.choices(kinds[:2] + kinds, k=max(0, FAULTS - len(kinds)))
        self._chance.shuffle(chosen)
        chosen.insert(len(chosen) // 2, self.deploy)
        for fault in chosen:
            await asyncio.sleep(EVERY)
            self._restart_ended()
            self.injected[fault.__name__] += await fault()

    async def kill(self) -> bool:
        """SIGKILL to a whole worker, if possible one that runs a job; another one is started."""
        worker = await self._busy()
        self.workers.remove(worker)
        worker.kill()
        self.workers.append(self._start(self._version))
        return True

    async def kill_child(self) -> bool:
        """SIGKILL to one process of a worker, which the parent replaces; one that starts has none yet."""
        async with asyncio.timeout(TAKES_OVER):
            while True:
                with suppress(IndexError, OSError):  # none yet, or it has just ended
                    os.kill(self._chance.choice((await self._busy()).children()), signal.SIGKILL)
                    return True
                self._restart_ended()
                await asyncio.sleep(0.05)

    async def hang(self) -> bool:
        """SIGSTOP to a worker for longer than a lease."""
        worker = await self._busy()
        os.killpg(worker.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(HUNG)
        finally:
            os.killpg(worker.pid, signal.SIGCONT)
        return True

    async def flush(self) -> bool:
        """Redis loses everything."""
        self._sentinel.master.ask("FLUSHALL")
        return True

    async def fail_over(self) -> bool:
        """The replica takes over; Sentinels that refuse, as shortly after another one, are asked again."""
        before = self._sentinel.master
        with suppress(TimeoutError):
            async with asyncio.timeout(TAKES_OVER):
                while self._sentinel.master is before:
                    with suppress(ServerError):
                        self._sentinel.sentinels[0].ask("SENTINEL", "FAILOVER", "mymaster")
                    await asyncio.sleep(0.5)
                return True
        return False

    async def restart_sql(self) -> bool:
        """PostgreSQL crashes and restarts."""
        await asyncio.to_thread(self._postgres.kill)
        await asyncio.to_thread(self._postgres.restart)
        return True

    async def deploy(self) -> bool:
        """Workers of the new version replace the old ones, one by one, each after an orderly stop."""
        self._version = "new"
        for _ in range(WORKERS):
            self.workers.append(self._start("new"))
            code = await asyncio.to_thread(self.workers.pop(0).stop)
            assert code in (0, -signal.SIGTERM), (
                f"a worker ended with {code} after SIGTERM"
            )  # the latter at its start
            self._restart_ended()
        return True

    def _restart_ended(self) -> None:
        """A worker that is started while SQL is down ends; its supervisor starts another."""
        for ended in [each for each in self.workers if each.exit_code is not None]:
            self.workers.remove(ended)
            self.workers.append(self._start(self._version))
            self.injected["restarted"] += 1

    async def _busy(self) -> Worker:
        """A worker that runs a job now, or any after a while."""
        table = NEW.jobs.tables.jobs
        chosen = select(table.c.worker).where(table.c.state == "running").order_by(table.c.started_at.desc())
        with suppress(TimeoutError, DBAPIError, OSError):
            async with asyncio.timeout(EVERY), self._engine.connect() as sql:
                while True:
                    for (name,) in await sql.execute(chosen):
                        pid = int(name.rpartition(":")[2])
                        for worker in self.workers:
                            if pid == worker.pid or pid in worker.children():
                                return worker
                    await asyncio.sleep(0.02)
        return self._chance.choice(self.workers)

    def end(self) -> None:
        """Kill all workers."""
        while self.workers:
            self.workers.pop().kill()


@asynccontextmanager
async def opened(url: str, sql: str, delivery: str) -> AsyncIterator[BoundJobs]:
    """The jobs as a service has them, and the table of effects."""
    engine = sql_engine(sql)
    try:
        await migrate(engine, NEW.jobs)
        async with engine.begin() as connection:
            await connection.run_sync(EFFECTS.metadata.create_all)
        resources = {NEW.jobs: CeleryDelivery(engine) if delivery == "celery" else engine}
        async with connect(url, NEW.catalogue, required=False, resources=resources) as store:
            yield store[NEW.jobs]
    finally:
        await engine.dispose()


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """A database server that may be killed."""
    with embedded.postgres() as running:
        yield running


@pytest.mark.campaign
@pytest.mark.timeout(WITHIN + 120)
@pytest.mark.parametrize("delivery", ["sql", "celery"])
async def test_jobs_of_all_sorts_are_done_once_whatever_fails(
    own_postgres: Postgres, delivery: str, tmp_path: Path
) -> None:
    """No job is lost or early, no step has its effect twice, and every run of a schedule has one job."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance, numbers = random.Random(seed), count()
    sql = own_postgres.database(f"mixed_{delivery}")
    with embedded.sentinel(down_after=1000) as sentinel:

        def start(version: str) -> Worker:
            return Worker(
                sentinel.url,
                sql,
                delivery=delivery,
                processes=2 if delivery == "celery" else 1,
                concurrency=1 if delivery == "celery" else 5,
                log=tmp_path / f"{version}-{next(numbers)}.log",
                module="tests.chaos.mixed_jobs",
                environment={"WORKER_VERSION": version},
            )

        async with opened(sentinel.url, sql, delivery) as jobs:
            producer = Producer(jobs, chance)
            await producer.prioritised(PRIORITISED)
            faults = Faults(jobs.engine, start, sentinel, own_postgres, chance)
            try:
                await producer.new_kind(COUNT // 10)  # before any worker knows it
                async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as group:
                    group.create_task(faults.inject_all())
                    group.create_task(producer.rest(COUNT * 7 // 10))
                async with asyncio.timeout(WITHIN):
                    while left := await _open(jobs, producer):
                        await asyncio.sleep(0.2)
                    until = await producer.now()
                    while await _open_reports(jobs, until):
                        await asyncio.sleep(0.2)
            finally:
                faults.end()
            assert not left
            print(f"{len(producer.expected)} jobs, {dict(faults.injected)}")
            assert all(faults.injected[name] for name in FAULT_NAMES), f"only {faults.injected}"
            await check(jobs, producer, until)


async def _open_reports(jobs: BoundJobs, until: datetime) -> int:
    """How many jobs that the clock enqueued before a moment are not done."""
    table = NEW.jobs.tables.jobs
    chosen = select(func.count()).where(
        table.c.kind == "report", table.c.state != "done", table.c.created_at <= until
    )

    async def count_open() -> int:
        async with jobs.engine.connect() as sql:
            return int((await sql.execute(chosen)).scalar_one())

    return await _persist(count_open)


async def _open(jobs: BoundJobs, producer: Producer) -> int:
    """How many of the accepted jobs have not ended."""
    table = NEW.jobs.tables.jobs
    over = table.c.state.in_(("done", "failed", "dead", "cancelled"))
    chosen = select(func.count()).where(over, table.c.kind != "report")

    async def ended() -> int:
        async with jobs.engine.connect() as sql:
            return int((await sql.execute(chosen)).scalar_one())

    return len(producer.expected) - await _persist(ended)


async def check(jobs: BoundJobs, producer: Producer, until: datetime) -> None:
    """What must hold in the end."""
    rows, effects = await _rows(jobs.engine), await _effects(jobs.engine)
    accepted = {each.job_id for each in producer.expected}
    assert accepted == {row.id for row in rows.values() if row.kind != "report"}, "lost, or enqueued twice"
    for each in producer.expected:
        row = rows[each.job_id]
        assert row.state == "done", f"{row.id} is {row.state}: {row.error}"
        assert [step for step, _, _ in effects[row.id]] == list(range(STEPS)), f"{row.id}: {effects[row.id]}"
        fences = [fence for _, fence, _ in effects[row.id]]
        assert fences == sorted(fences)
        first = effects[row.id][0][2]
        assert each.due is None or first >= each.due, f"{row.id} ran {each.due - first} early"
    assert any(row.fence > 1 for row in rows.values()), "no job was taken over"
    _check_priorities(producer, rows)
    _check_schedules(rows, effects, until)


def _check_priorities(producer: Producer, rows: dict[str, Any]) -> None:
    """Those of a high priority began first, on average: a killed worker may have begun any."""
    starts: dict[int, list[float]] = defaultdict(list)
    for each in producer.expected[:PRIORITISED]:
        starts[each.priority].append(rows[each.job_id].started_at.timestamp())
    high, low = (sorted(starts[priority])[len(starts[priority]) // 2] for priority in (9, 0))
    assert high <= low, f"of a high priority {high}, of a low one {low}"


def _check_schedules(
    rows: dict[str, Any], effects: dict[str, list[tuple[int, int, datetime]]], until: datetime
) -> None:
    """Each run from the first to the last had its job, none began early, and until then all are done."""
    reports = {row.id for row in rows.values() if row.kind == "report"}
    begin = min(row.created_at for row in rows.values()) - timedelta(seconds=5)
    for schedule in NEW.schedules:
        run, runs = begin, []
        while (run := schedule.when.next_after(run)) <= datetime.now(UTC):
            job_id = str(schedule.job_at(NEW.jobs.tables.jobs.name, run).id)
            if job_id in reports:
                reports.discard(job_id)
                runs.append(run)
                steps = effects[job_id]
                expected = STEPS if rows[job_id].created_at <= until else len(steps)
                assert [step for step, _, _ in steps] == list(range(expected)), f"{job_id}: {steps}"
                assert all(at >= run for _, _, at in steps), f"{run} began early: {steps}"
        assert len(runs) > 2, f"{schedule.name} ran {len(runs)} times"
        for before, after in pairwise(runs):
            assert schedule.when.next_after(before) == after, (
                f"{schedule.name}: none between {before}, {after}"
            )
    assert not reports, "jobs of no run"


async def _rows(engine: AsyncEngine) -> dict[str, JobRow | Any]:
    async with engine.connect() as sql:
        return {row.id: row for row in await sql.execute(select(NEW.jobs.tables.jobs))}


async def _effects(engine: AsyncEngine) -> dict[str, list[tuple[int, int, datetime]]]:
    found: dict[str, list[tuple[int, int, datetime]]] = defaultdict(list)
    async with engine.connect() as sql:
        for row in await sql.execute(select(EFFECTS).order_by(EFFECTS.c.id)):
            found[row.job_id].append((row.step, row.fence, row.at))
    return found
