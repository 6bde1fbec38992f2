"""A worker: Celery's parent process and its children, each with an event loop, a store and a database.

*Processes.* A child runs one job at a time. Its main thread is Celery's; the job runs on the child's event
loop, in a thread that `ephemera.sync` owns. The loop keeps running between jobs, so connections stay healthy
and any child can be the reaper. Children are forked before they connect to anything, and die with their
parent.

*Attempts.* A claim gives an attempt a fence and a lease, both in SQL. The lease is renewed every second while
the job runs; the same statement notices that the job was cancelled or taken over, and the work is then
cancelled with a `JobLost` that says why. The same happens if SQL cannot be reached for the length of the
lease, since another worker may have the job by then, even if a query hangs. Whatever a lost attempt still
does is refused, by SQL and by the checkpoint.

*Stopping.* On SIGTERM or SIGINT the worker takes no more jobs; running jobs are released after their current
step and continue elsewhere at once. After SIGKILL of any process, its jobs continue elsewhere within 10 s.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import mmap
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import msgspec

from ephemera import sync
from ephemera.errors import InvalidDeclaration, JobFailed, JobLost, JobTimedOut
from ephemera.keyspace import Role, Store
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._job_definition import Job, decode_arguments, retry_delay
from ephemera.patterns.jobs._reaper import run_reaper
from ephemera.patterns.jobs._rows import DATABASE_ERRORS, JobRow, JobState
from ephemera.patterns.jobs._run_context import Run, resume_run, until_database_answers, with_timeout
from ephemera.patterns.jobs._runtime import JobBackend, sql_engine
from ephemera.wire import Client

_log = logging.getLogger("ephemera.jobs")
_PR_SET_PDEATHSIG = 1
_RENEWAL = 1.0  # seconds between renewals of a lease, at most a fifth of it
_MAX_ERROR = 4000  # characters of an error that the row keeps


@dataclass(frozen=True)
class WorkerSettings:
    """The servers of a worker; `url` and `queue_url` are those of `connect`. Its `repr` shows no secret."""

    url: str = field(repr=False)
    database_url: str = field(repr=False)
    queue_url: str | None = field(default=None, repr=False)

    @property
    def broker_url(self) -> str:
        """The server of the queues."""
        return self.queue_url or self.url


def run_worker(
    jobs: Jobs,
    settings: WorkerSettings,
    *,
    queues: tuple[str, ...] = (),
    processes: int = 2,
) -> int:
    """Run a worker for these queues, or all, until a signal stops it; returns its exit code."""
    from celery import signals  # here, since importing Celery is slow and only workers need it

    from ephemera.patterns.jobs._celery import celery_app

    if unknown := set(queues) - set(jobs.queues):
        raise InvalidDeclaration(
            ", ".join(sorted(unknown)), "there is no such queue", f"use {', '.join(jobs.queues)}"
        )
    sql_engine(settings.database_url)  # refuses an unusable URL here rather than in a child
    stopping = mmap.mmap(-1, 1)  # one byte shared with all children
    child = _Child(jobs, settings, stopping)
    app = celery_app(jobs, settings.broker_url, queues or jobs.queues, child.run)

    def stop(**_: Any) -> None:
        stopping[0] = 1

    signals.worker_process_init.connect(child.start, weak=False)
    signals.worker_process_shutdown.connect(child.stop, weak=False)
    signals.worker_shutting_down.connect(stop, weak=False)
    worker = app.Worker(
        hostname=f"{jobs.name}-{os.getpid()}@{socket.gethostname()}",
        pool="prefork",
        concurrency=processes,
        loglevel=logging.getLogger().getEffectiveLevel(),
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


class _Child:
    """One of Celery's child processes; created in the parent, started in the child."""

    def __init__(self, jobs: Jobs, settings: WorkerSettings, stopping: mmap.mmap) -> None:
        self._jobs = jobs
        self._settings = settings
        self._stopping = stopping
        self._sync_store = sync.connect(
            settings.url, jobs.catalogue, queue_url=settings.queue_url, required=False
        )
        self._opened = AsyncExitStack()
        self._worker_context: Any = None
        self._attempts: AttemptRunner
        self._reaper: asyncio.Task[None]

    def start(self, **_: Any) -> None:
        """Connect, and compete for the reaper's lock."""
        with suppress(OSError, AttributeError):  # Linux only: elsewhere it finishes its job first
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        self._sync_store.wait(self._start())

    def run(self, job_id: str) -> str:
        """Run a job: Celery's task."""
        return self._sync_store.wait(self._attempts.run(job_id))

    def stop(self, **_: Any) -> None:
        """Close everything that was opened."""
        self._sync_store.wait(self._opened.aclose())
        self._sync_store.close()

    async def _start(self) -> None:
        engine = sql_engine(self._settings.database_url)
        self._opened.push_async_callback(engine.dispose)
        resources = await self._opened.enter_async_context(self._jobs.open_resources(engine))
        opened = self._sync_store.aio
        clients: dict[Role, Client] = {"cache": opened.client("cache"), "queue": opened.client("queue")}
        store = Store(clients, *opened.catalogues, resources=resources)
        self._opened.push_async_callback(store.aclose)
        backend = JobBackend(self._jobs, store, engine)
        name = f"{socket.gethostname()}:{os.getpid()}"

        async def worker_context() -> Any:
            if self._jobs.context_factory is not None and self._worker_context is None:
                context = self._jobs.context_factory(store, engine)
                self._worker_context = await self._opened.enter_async_context(context)
            return self._worker_context

        self._attempts = AttemptRunner(
            backend, name, worker_context=worker_context, is_stopping=lambda: bool(self._stopping[0])
        )
        self._reaper = asyncio.create_task(run_reaper(backend))
        self._opened.callback(self._reaper.cancel)


class AttemptRunner:
    """Runs jobs one after the other, in one worker process."""

    def __init__(
        self,
        backend: JobBackend,
        worker: str,
        *,
        worker_context: Callable[[], Awaitable[Any]],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._backend = backend
        self._rows = backend.rows
        self._worker = worker
        self._worker_context = worker_context
        self._is_stopping = is_stopping
        lease = backend.declaration.lease.total_seconds()
        self._interval = min(_RENEWAL, lease / 5)
        self._safe = lease * 0.95  # clocks may run at different speeds

    async def run(self, job_id: str) -> str:
        """Claim a job and run it; returns how that ended, for Celery's log."""
        sent = monotonic()
        row = await self._rows.claim(job_id, self._worker, self._backend.declaration.lease)
        if row is None:
            return "refused"
        job = self._backend.declaration.kinds.get(row.kind)
        if job is None:
            problem = (
                f"worker {self._worker} does not know the job {row.kind!r}: deploy a version that has it"
            )
            await self._rows.reschedule(row.id, row.fence, problem, self._backend.declaration.lease)
            return "unknown"
        if row.attempts > job.attempts:
            last = row.error or "none, its workers died"
            return await self._fail(
                row, "dead", f"given up after {job.attempts} attempts; the last error: {last}"
            )
        return await self._run_under_lease(row, job, sent + self._safe)

    async def _run_under_lease(self, row: JobRow, job: Job[..., Any], deadline: float) -> str:
        try:
            run = await resume_run(self._backend, row)
        except JobLost as lost:
            _log.warning("%s", lost)
            return "lost"
        work = asyncio.create_task(self._work(run.row, job, run), name=f"job {row.id}")
        lease = asyncio.create_task(self._renew_lease(run, deadline))
        try:
            await asyncio.wait({work, lease}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and (ended := lease.result()) is not None:
                run._state.lost = ended
                work.cancel(str(ended))
            return await work
        except (JobLost, asyncio.CancelledError):
            if run._lost is None:
                raise
            _log.warning("%s", run._lost)
            return "lost"
        finally:
            lease.cancel()
            work.cancel()
            # A thread cannot be stopped; this process takes no other job until it has ended.
            if run._state.threads:
                await asyncio.wait(run._state.threads)

    async def _renew_lease(self, run: Run, deadline: float) -> JobLost | None:
        """Renew the lease until it is lost, and return the reason; None if the attempt has ended."""
        while True:
            await asyncio.sleep(self._interval)
            if self._is_stopping() and not run._state.stopping:
                run._state.stopping = True
                _log.info("job %s is released after its current step: this worker stops", run.id)
            sent = monotonic()
            try:
                found = await with_timeout(self._renew_once(run), max(deadline - sent, self._interval))
            except (*DATABASE_ERRORS, TimeoutError) as problem:
                if monotonic() >= deadline:
                    return JobLost(run.id, run.fence, f"its lease could not be renewed in SQL ({problem!r})")
            else:
                if found is not True:
                    return None if found is False else found
                deadline = sent + self._safe

    async def _renew_once(self, run: Run) -> JobLost | bool:
        """True if the lease was renewed, False if this attempt has ended the job itself."""
        if await self._rows.renew(run.id, run.fence, self._backend.declaration.lease):
            return True
        row = await self._backend.queries.get(run.id)
        if row is None:
            return JobLost(run.id, run.fence, "its row was deleted")
        if row.fence == run.fence:
            return False
        if row.state == "cancelled":
            return JobLost(run.id, run.fence, "it was cancelled")
        return JobLost(run.id, run.fence, f"it is {row.state}, with the fence {row.fence} of {row.worker}")

    async def _work(self, row: JobRow, job: Job[..., Any], run: Run) -> str:
        """Run the function, and record the outcome."""
        try:
            return await self._complete(row, await self._call(row, job, run))
        except JobFailed as failed:
            return await self._fail(row, "failed", failed.reason)
        except asyncio.CancelledError:
            if not run._state.released:
                raise
            return await self._release(row)
        except JobLost as lost:
            run._state.lost = run._lost or lost
            raise
        except Exception as error:
            if run._lost is not None:
                raise run._lost from error
            if run._state.released:  # a graph turns the cancellation of a node into an error of its own
                return await self._release(row)
            _log.exception("job %s (%s), attempt %d failed", row.id, row.kind, row.attempts)
            problem = f"{type(error).__name__}: {error}"[:_MAX_ERROR]
            if row.attempts >= job.attempts:
                return await self._fail(row, "dead", problem)
            delay = retry_delay(row.attempts)
            await self._change(row, lambda: self._rows.reschedule(row.id, row.fence, problem, delay))
            return "rescheduled"

    async def _call(self, row: JobRow, job: Job[..., Any], run: Run) -> Any:
        """The function's result within the job's time limit, as JSON-compatible data."""
        limit = job.time_limit.total_seconds()
        try:
            async with asyncio.timeout(limit) as clock:
                run.worker_context = await self._worker_context()
                returned = await job.function(run, **decode_arguments(job, row.arguments))
                return msgspec.to_builtins(returned, str_keys=True)
        except TimeoutError:
            if not clock.expired():
                raise
            raise JobTimedOut(row.id, limit, run._state.current_step) from None

    async def _complete(self, row: JobRow, result: Any) -> str:
        done = await self._change(row, lambda: self._rows.complete(row.id, row.fence, result))
        await self._backend.finish(done)
        return "done"

    async def _fail(self, row: JobRow, state: JobState, error: str) -> str:
        _log.error("job %s (%s) is %s: %s", row.id, row.kind, state, error)
        failed = await self._change(row, lambda: self._rows.fail(row.id, row.fence, state, error))
        await self._backend.finish(failed)
        return state

    async def _release(self, row: JobRow) -> str:
        waiting = await self._change(row, lambda: self._rows.release(row.id, row.fence))
        await self._backend.send_message(waiting)
        return "released"

    async def _change(self, row: JobRow, change: Callable[[], Awaitable[JobRow | None]]) -> JobRow:
        """The row after a change of its state; `JobLost` if another worker has the job."""
        changed = await until_database_answers(change)
        if changed is None:
            # If the answer to a first try was lost, a row with our fence is what we wrote.
            changed = await until_database_answers(lambda: self._backend.queries.get(row.id))
        if changed is None or changed.fence != row.fence:
            raise JobLost(row.id, row.fence, "SQL has a later fence")
        return changed
