"""Resuming a job: what the next attempt repeats, with and without Redis, and how an attempt loses its job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from time import monotonic
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from ephemera import Catalogue, embedded, keyspace
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import JobLost
from ephemera.patterns.jobs import BoundJobs, JobRow, Jobs, Retry, Run, sql_engine
from ephemera.patterns.jobs._rows import claim_values
from ephemera.patterns.jobs._tables import read_row, row_columns
from tests.patterns.job_store import attempt_by, delivered_by, resumed
from tests.patterns.wait_for_jobs import until


class Outline(msgspec.Struct, frozen=True):
    """The result of a step."""

    titles: list[str]


CATALOGUE = Catalogue("test-jobs-resuming")
JOBS = Jobs(
    CATALOGUE,
    "checkpoint:{job_id}",
    queues=("work",),
    name="resumed",
    lease=timedelta(seconds=1),
)
WORK: dict[str, list[str]] = {}
"""What each job did, in this process."""
GATES: dict[str, asyncio.Event] = {}
"""What each job waits for."""


def did(run: Run, what: str) -> str:
    """Record an effect."""
    WORK.setdefault(run.id, []).append(what)
    return what


@JOBS.job(queue="work", retry=Retry(attempts=3))
async def outline(run: Run, fail_first: bool = True) -> Outline:
    """A step that is not durable, a typed step, and an attempt that fails after them."""

    def plan() -> Outline:
        did(run, "outline")
        return Outline(["one", "two"])

    await run.step("cheap", did, run, "cheap", durable=False)
    made = await run.step("outline", plan)
    assert isinstance(made, Outline)
    if fail_first and run.attempt == 1:
        raise ValueError("the first attempt fails")
    return made


@JOBS.job(queue="work")
async def gated(run: Run) -> str:
    """A step, one that waits for its gate, and one more."""
    await run.step("first", did, run, f"first by {run.fence}")
    did(run, f"waits by {run.fence}")
    try:
        await run.step("wait", GATES[run.id].wait)
    except asyncio.CancelledError as reason:
        did(run, f"cancelled: {reason}")
        raise
    await run.step("last", did, run, f"last by {run.fence}")
    return "open"


@JOBS.job(queue="work", retry=Retry(attempts=1))
async def twice(run: Run) -> None:
    """Two steps with the same name."""
    await run.step("same", did, run, "same")
    await run.step("same", did, run, "same")


@JOBS.job(queue="work", retry=Retry(attempts=1))
async def unstorable(run: Run) -> None:
    """A result that JSON cannot hold."""
    await run.step("object", object)


@pytest.fixture(scope="module")
def own() -> Iterator[Valkey]:
    """A server that may be stopped."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture(params=["sql", "celery"])
async def jobs(own: Valkey, postgres: Postgres, request: pytest.FixtureRequest) -> AsyncIterator[BoundJobs]:
    """Jobs that run in this process."""
    engine = sql_engine(postgres.database("test_jobs_resume"))
    resources = {JOBS: delivered_by(request.param, engine)}
    async with keyspace.connect(own.url, CATALOGUE, resources=resources) as store:
        jobs = store[JOBS]
        await jobs.create_tables()
        yield jobs
    await engine.dispose()


async def due(jobs: BoundJobs, job_id: str) -> None:
    """Wait until a job's next attempt is due."""

    async def allowed() -> bool:
        row = await jobs.get(job_id)
        return row.state == "waiting" and job_id in {
            each.id for each in await jobs._backend.rows.unpublished("work", 100)
        }

    await until(allowed)


async def test_the_next_attempt_runs_only_the_remaining_steps(jobs: BoundJobs) -> None:
    """Completed steps, durable or not, are not repeated; results keep their types."""
    job_id = await jobs.enqueue(outline)
    assert await attempt_by(jobs).run(job_id) == "rescheduled"
    await due(jobs, job_id)
    assert await attempt_by(jobs, "worker-2").run(job_id) == "done"
    assert WORK[job_id] == ["cheap", "outline"]
    row = await jobs.get(job_id)
    assert (row.result, row.worker, row.attempts) == ({"titles": ["one", "two"]}, "worker-2", 2)


async def test_a_job_without_checkpoint_continues_from_sql(jobs: BoundJobs) -> None:
    """When Redis has lost everything, only the step with `durable=False` is repeated."""
    job_id = await jobs.enqueue(outline)
    assert await attempt_by(jobs).run(job_id) == "rescheduled"
    await jobs.store.call("FLUSHALL")
    await due(jobs, job_id)
    assert await attempt_by(jobs).run(job_id) == "done"
    assert WORK[job_id] == ["cheap", "outline", "cheap"]


@pytest.mark.parametrize("fence", [b"9" * 18, b"1e300", b"no number"])
async def test_a_hostile_checkpoint_stops_no_job(jobs: BoundJobs, fence: bytes) -> None:
    """A fence, a name or a result that we never wrote is ignored; a step that only Redis had is repeated."""
    job_id = await jobs.enqueue(outline)
    assert await attempt_by(jobs).run(job_id) == "rescheduled"
    key = JOBS.checkpoints.key(job_id=job_id)
    await jobs.store.call("HSET", key, "_fence", fence, "step:cheap", b"\xff{", b"\xff", b"\xff")
    await due(jobs, job_id)
    assert await attempt_by(jobs).run(job_id) == "done"
    assert WORK[job_id] == ["cheap", "outline", "cheap"]


async def test_a_job_runs_to_its_end_while_redis_is_down(jobs: BoundJobs, own: Valkey) -> None:
    """A job is enqueued, run and finished with SQL alone; its message follows when Redis is back."""
    own.kill()
    try:
        job_id = await jobs.enqueue(outline, fail_first=False)
        assert (await jobs.get(job_id)).published_at is None
        assert await attempt_by(jobs).run(job_id) == "done"
    finally:
        own.restart()
    assert WORK[job_id] == ["cheap", "outline"]


async def test_two_steps_with_the_same_name_are_refused(jobs: BoundJobs) -> None:
    """A resumed job could not distinguish them: the job is dead, and its error says what to do."""
    job_id = await jobs.enqueue(twice)
    assert await attempt_by(jobs).run(job_id) == "dead"
    assert "has two steps 'same'; give each a name of its own" in str((await jobs.get(job_id)).error)


async def test_a_result_that_cannot_be_stored_is_refused(jobs: BoundJobs) -> None:
    """A result that JSON cannot hold is refused, and the error names the step."""
    job_id = await jobs.enqueue(unstorable)
    assert await attempt_by(jobs).run(job_id) == "dead"
    assert "'unstorable, step object' holds what JSON can hold" in str((await jobs.get(job_id)).error)


async def begun(jobs: BoundJobs, worker: str, **options: Any) -> tuple[str, asyncio.Task[str]]:
    """A job whose attempt waits at its gate."""
    job_id = await jobs.enqueue(gated)
    GATES[job_id] = asyncio.Event()
    attempt = asyncio.create_task(attempt_by(jobs, worker, **options).run(job_id))
    await until(lambda: _waits(job_id, 1))
    return job_id, attempt


async def _waits(job_id: str, fence: int) -> bool:
    return f"waits by {fence}" in WORK.get(job_id, [])


async def _claimed_as_if_expired(jobs: BoundJobs, job_id: str, worker: str) -> JobRow:
    """Claim a running job; its worker cannot renew its lease in between, as it could after `lapse`."""
    table = JOBS.tables.jobs
    claim = update(table).where(table.c.id == job_id).values(claim_values(table.c, worker, JOBS.lease))
    async with jobs.engine.begin() as sql:
        return read_row((await sql.execute(claim.returning(*row_columns(JOBS.tables)))).one())


async def test_an_overtaken_worker_is_cancelled_with_the_reason(jobs: BoundJobs) -> None:
    """An overtaken worker is cancelled in its step, with the name of the other, and records nothing."""
    job_id, old = await begun(jobs, "old")
    row = await _claimed_as_if_expired(jobs, job_id, "new")
    new = asyncio.create_task(attempt_by(jobs, "new").run_claimed(row, monotonic()))
    assert await old == "lost"
    await until(lambda: _waits(job_id, 2))
    GATES[job_id].set()
    assert await new == "done"
    cancelled = next(line for line in WORK[job_id] if line.startswith("cancelled"))
    assert "it is running, with the fence 2 of new" in cancelled
    assert [line for line in WORK[job_id] if line.startswith(("first", "last"))] == [
        "first by 1",
        "last by 2",
    ]


async def test_a_cancelled_job_stops_within_about_a_second(jobs: BoundJobs) -> None:
    """The running step is cancelled, with the reason."""
    job_id, attempt = await begun(jobs, "one")
    await jobs.cancel(job_id)
    async with asyncio.timeout(60):
        assert await attempt == "lost"
    assert "it was cancelled" in WORK[job_id][-1]


async def test_a_stopping_worker_releases_its_job_after_the_step(jobs: BoundJobs) -> None:
    """The running step is finished and recorded; another worker runs the next one, in the same attempt."""
    stopping = False
    job_id, attempt = await begun(jobs, "one", is_stopping=lambda: stopping)
    stopping = True
    await asyncio.sleep(0.5)  # its next renewal, after 0.2 s, notices it
    GATES[job_id].set()
    assert await attempt == "released"
    row = await jobs.get(job_id)
    assert (row.state, row.attempts, row.step) == ("waiting", 0, "wait")
    assert await attempt_by(jobs, "two").run(job_id) == "done"
    assert "last by 2" in WORK[job_id]
    assert "last by 1" not in WORK[job_id]


async def test_a_late_worker_is_refused_by_sql_and_redis(jobs: BoundJobs) -> None:
    """A worker whose lease has expired can neither record a step in SQL nor save or publish in Redis."""
    job_id = await jobs.enqueue(gated)
    lapsed = timedelta(seconds=-1)
    row = await jobs._backend.rows.claim(job_id, "old", lapsed)
    assert row is not None
    old = await resumed(jobs, row)
    taken = await jobs._backend.rows.claim(job_id, "new", timedelta(seconds=30))
    assert taken is not None
    await resumed(jobs, taken)
    with pytest.raises(JobLost, match="SQL has a later fence"):
        await old.step("by SQL", did, old, "late")
    with pytest.raises(JobLost, match="carries the later fence 2"):
        await old.step("by Redis", did, old, "late", durable=False)
    assert await jobs._backend.queries.steps(job_id) == {}


async def test_a_database_restored_from_a_backup_catches_up_with_redis(jobs: BoundJobs) -> None:
    """If Redis has a later fence than SQL, the job gets one above it, and runs."""
    job_id = await jobs.enqueue(outline, fail_first=False)
    await jobs._backend._checkpoints.open(job_id, 7, "before the restore")._begin()
    assert await attempt_by(jobs).run(job_id) == "done"
    assert (await jobs.get(job_id)).fence == 8
