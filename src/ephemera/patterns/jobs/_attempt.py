"""One attempt of a job, from its claim to the outcome in its row.

A claim gives an attempt a fence and a lease, both in SQL. The lease is renewed while the attempt lasts
(`_claims`); whatever a lost attempt still does is refused, by SQL and by the checkpoint. The outcome is
written when nothing of the attempt runs any more, so that its row is never another worker's before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, NamedTuple, Protocol

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import JobFailed, JobLost, JobSnoozed, JobTimedOut
from ephemera.patterns.jobs._claims import Completions, JobClaims, LeaseKeeper
from ephemera.patterns.jobs._job_definition import Job, decode_arguments
from ephemera.patterns.jobs._job_queries import JobQueries
from ephemera.patterns.jobs._rows import CompletedJob
from ephemera.patterns.jobs._run_context import CALLS, JobThreads, Run, resume_run, until_database_answers
from ephemera.patterns.jobs._runtime import JobBackend
from ephemera.patterns.jobs._sync_run import call_in_thread
from ephemera.patterns.jobs._tables import JobRow, JobState, describe_error, encode_result, storable_text

_log = logging.getLogger("ephemera.jobs")

Outcome = Callable[[], Awaitable[str]]
"""Writes how an attempt ended, and returns it in a word."""


class AttemptLimits(Protocol):
    """What enforces the hard limits of attempts."""

    def begin(self, run: Run, deadline: float) -> None:
        """An attempt begins, and must be over at a moment (monotonic)."""

    def end(self, run: Run) -> None:
        """Nothing of the attempt runs any more."""


class AttemptEngines(NamedTuple):
    """Connections of a worker that no job can use up."""

    claims: AsyncEngine
    """For claims and leases, which must not wait for a row that another transaction has locked."""
    outcomes: AsyncEngine
    """For the records of steps, and for how attempts end."""


class AttemptRunner:
    """Runs the attempts of one worker process, any number at a time."""

    def __init__(
        self,
        backend: JobBackend,
        worker: str,
        *,
        worker_context: Callable[[], Awaitable[Any]],
        is_stopping: Callable[[], bool],
        engines: AttemptEngines | None = None,
        limits: AttemptLimits | None = None,
        threads: JobThreads | None = None,
        job_threads: JobThreads | None = None,
    ) -> None:
        """`limits` learns which attempts run, so that their hard limits can be enforced.

        `threads` are those of steps, `job_threads` those of jobs that are plain functions: as many as jobs.
        """
        declaration = backend.declaration
        engines = engines or AttemptEngines(backend.engine, backend.engine)
        self.rows = backend.rows_on(engines.claims)
        self._backend = backend
        self._worker = worker
        self._worker_context = worker_context
        self._outcomes = backend.rows_on(engines.outcomes)
        self._queries = JobQueries(declaration.tables, engines.outcomes)
        self._completions = Completions(self._outcomes)
        self.claims = JobClaims(declaration, engines.claims, self.rows, worker)
        queries = JobQueries(declaration.tables, engines.claims)
        self.leases = LeaseKeeper(self.rows, queries, declaration.lease, is_stopping)
        self._limits = limits
        self._threads = threads or JobThreads()
        self._job_threads = job_threads or JobThreads()

    async def run(self, job_id: str) -> str:
        """Claim the job that a message names, and run it; returns how that ended, for Celery's log."""
        claimed = monotonic()
        if any(each.paused or each.is_limited for each in (await self.claims.settings()).values()):
            row = await self._claim_in_limits(job_id)
        else:
            row = await self.claims.named(job_id, "")
        if row is not None:
            return await self.run_claimed(row, claimed)
        if await self._hand_back(job_id):
            return "unknown"
        return "refused"

    async def run_claimed(self, row: JobRow, claimed: float) -> str:
        """Run a job that was claimed at a moment (monotonic)."""
        job = self._backend.declaration.kinds[row.kind]
        if row.attempts > job.attempts:
            last = row.error or "none, its workers died"
            return await self._fail(
                row, "dead", f"given up after {job.attempts} attempts; the last error: {last}"
            )
        return await self._run_under_lease(row, job, self.leases.deadline(claimed))

    async def _claim_in_limits(self, job_id: str) -> JobRow | None:
        """Claim a job if its queue allows it; otherwise the reaper sends its message when it does."""
        waiting = await self._queries.get(job_id)
        if waiting is None:
            return None
        settings = (await self.claims.settings()).get(waiting.queue)
        row = None
        if settings is None or not settings.paused:
            row = await self.claims.named(job_id, waiting.queue)
        if row is None and waiting.state == "waiting" and settings is not None:
            await self.rows.mark_unpublished([job_id])
        return row

    async def _hand_back(self, job_id: str) -> bool:
        """Leave a job of a kind that this process does not know to another; no attempt is used."""
        declaration = self._backend.declaration
        problem = f"worker {self._worker} does not know this kind of job: deploy a version that has it"
        return await self.rows.hand_back(job_id, list(declaration.kinds), problem, declaration.lease)

    async def _run_under_lease(self, row: JobRow, job: Job[..., Any], deadline: float) -> str:
        run = Run(self._backend, row, self._outcomes, self._threads)
        work = asyncio.create_task(self._work(job, run), name=f"job {row.kind} {row.id}")
        self.leases.hold(run, work, deadline)
        try:
            return await work
        except (JobLost, asyncio.CancelledError):
            if run._lost is None:
                raise
            _log.warning("%s", run._lost)
            run._state.deadline = 0.0
            async with self.leases.delay_retry(run):
                await run._wait_for_steps()  # until then this process has no place for another job
            run.checkpoint._forget_missing_events()
            return "lost"
        finally:
            self.leases.drop(run)
            work.cancel()
            self._end_limit(run)

    async def _work(self, job: Job[..., Any], run: Run) -> str:
        """Continue where the job is, run its function, wait for what it left running, write the outcome."""
        try:
            await resume_run(run, self._backend, self._queries)
        except JobLost as lost:
            run._state.lost = lost
            raise
        run._state.deadline = monotonic() + job.time_limit.total_seconds()
        if self._limits is not None:
            self._limits.begin(run, monotonic() + job.hard_limit.total_seconds())
        write = await self._outcome(run.row, job, run)
        await run._wait_for_steps()
        self._end_limit(run)
        return await write()

    def _end_limit(self, run: Run) -> None:
        if self._limits is not None:
            self._limits.end(run)

    async def _outcome(self, row: JobRow, job: Job[..., Any], run: Run) -> Outcome:
        try:
            result = await self._call(row, job, run)
        except JobFailed as failed:
            reason = storable_text(failed.reason)
            return lambda: self._fail(row, "failed", reason)
        except JobSnoozed as snoozed:
            delay = snoozed.delay
            return lambda: self._wait("snoozed", row, lambda: self._outcomes.snooze(row.id, row.fence, delay))
        except asyncio.CancelledError:
            if not run._state.released:
                raise
            return lambda: self._release(row)
        except JobLost as lost:
            run._state.lost = run._lost or lost
            raise
        except Exception as error:
            if run._lost is not None:
                raise run._lost from error
            if run._state.released:  # a graph turns the cancellation of a node into an error of its own
                return lambda: self._release(row)
            return await self._after_error(row, job, run, error)
        return lambda: self._complete(row, result)

    async def _after_error(self, row: JobRow, job: Job[..., Any], run: Run, error: Exception) -> Outcome:
        _log.error("job %s (%s), attempt %d failed", row.id, row.kind, row.attempts, exc_info=error)
        problem = describe_error(error)
        if run._state.calls:  # the process may be killed before they end
            await until_database_answers(lambda: self._outcomes.note_error(row.id, row.fence, problem))
        decided = job.retry.decide(row.attempts, error)
        if isinstance(decided, str):
            return lambda: self._fail(row, decided, problem)
        return lambda: self._wait(
            "rescheduled", row, lambda: self._outcomes.reschedule(row.id, row.fence, problem, decided)
        )

    async def _call(self, row: JobRow, job: Job[..., Any], run: Run) -> Any:
        """The function's result within the job's time limit."""
        limit = job.time_limit.total_seconds()
        try:
            async with asyncio.timeout(limit) as clock:
                run.worker_context = await self._worker_context()  # its threads are not the attempt's
                CALLS.set(run._state.calls)
                arguments = decode_arguments(job, row.arguments)
                if job.is_async:
                    return await job.function(run, **arguments)
                return await call_in_thread(self._job_threads, job.function, run, arguments)
        except TimeoutError:
            if not clock.expired():
                raise
            raise JobTimedOut(row.id, limit, run._state.current_step) from None

    async def _complete(self, row: JobRow, result: Any) -> str:
        try:
            done = CompletedJob(row.id, row.fence, encode_result(result))
            ended = await self._change(row, lambda: self._completions.complete(done))
        # By JSON, or by PostgreSQL; `_change` waits for a database that is down.
        except (DBAPIError, TypeError, ValueError, RecursionError) as problem:
            _log.exception("the result of job %s (%s) was refused", row.id, row.kind)
            reason = f"it is done, but its result could not be stored: {describe_error(problem)}"
            empty = CompletedJob(row.id, row.fence, "null", storable_text(reason))
            ended = await self._change(row, lambda: self._completions.complete(empty))
        await self._backend.finish(ended)
        return "done"

    async def _fail(self, row: JobRow, state: JobState, error: str) -> str:
        _log.error("job %s (%s) is %s: %s", row.id, row.kind, state, error)
        failed = await self._change(row, lambda: self._outcomes.fail(row.id, row.fence, state, error))
        await self._backend.finish(failed)
        return state

    async def _wait(self, word: str, row: JobRow, change: Callable[[], Awaitable[JobRow | None]]) -> str:
        await self._change(row, change)
        return word

    async def _release(self, row: JobRow) -> str:
        waiting = await self._change(row, lambda: self._outcomes.release(row.id, row.fence))
        await self._backend.send_message(waiting)
        return "released"

    async def _change(self, row: JobRow, change: Callable[[], Awaitable[JobRow | None]]) -> JobRow:
        """The row after a change of its state; `JobLost` if another worker has the job."""
        changed = await until_database_answers(change)
        if changed is None:
            # If the answer to a first try was lost, a row with our fence is what we wrote.
            changed = await until_database_answers(lambda: self._queries.get(row.id))
        if changed is None or changed.fence != row.fence:
            raise JobLost(row.id, row.fence, "SQL has a later fence")
        return changed
