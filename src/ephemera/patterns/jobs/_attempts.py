"""One attempt of a job in a worker's process: claim, keep, run, and write down what came of it.

The claim gives the attempt a fence and a lease, both in SQL. The lease is renewed every second while the
work goes on; the same statement notices that the job was cancelled or taken over. The work is then
cancelled, with a `JobLost` that says why. So it is when SQL cannot be asked for as long as the lease lasts,
since another worker may have the job by then; a database that hangs is no reason to be late with that.
Whatever an attempt that was lost still does is refused, by SQL and by the checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import msgspec

from ephemera.errors import JobFailed, JobLost, JobTimedOut
from ephemera.patterns.jobs._job_definition import Job
from ephemera.patterns.jobs._rows import SQL_TROUBLE, JobRow, State
from ephemera.patterns.jobs._run_context import Run, in_time, patiently
from ephemera.patterns.jobs._runtime import BoundJobs

_log = logging.getLogger("ephemera.jobs")
_BEAT = 1.0  # seconds between renewals, at most a fifth of the lease
_MOST_ERROR = 4000  # characters of an error that the row keeps


class Attempt:
    """What one worker process needs to run jobs, one after the other."""

    def __init__(
        self,
        live: BoundJobs,
        worker: str,
        *,
        resources: Callable[[], Awaitable[Any]],
        stopping: Callable[[], bool],
    ) -> None:
        self._live = live
        self._rows = live.rows
        self._worker = worker
        self._resources = resources
        self._stopping = stopping
        lease = live.declared.lease.total_seconds()
        self._interval = min(_BEAT, lease / 5)
        self._safe = lease * 0.95  # clocks may differ in pace

    async def run(self, job_id: str) -> str:
        """Run a job if it is to be had; a word on how that ended."""
        sent = monotonic()
        row = await self._rows.claim(job_id, self._worker, self._live.declared.lease)
        if row is None:
            return "refused"
        job = self._live.declared.kinds.get(row.kind)
        if job is None:
            problem = f"the worker {self._worker} knows no job {row.kind!r}: deploy the version that has it"
            await self._rows.again(row.id, row.fence, problem, self._live.declared.lease)
            return "unknown"
        if row.attempts > job.attempts:
            last = row.error or "none, its workers died"
            return await self._end(
                row, "dead", f"given up after {job.attempts} attempts; the last error: {last}"
            )
        return await self._kept(row, job, sent + self._safe)

    async def _kept(self, row: JobRow, job: Job[..., Any], deadline: float) -> str:
        """The attempt under its lease."""
        try:
            run = await Run.resumed(self._live, row)
        except JobLost as lost:
            _log.warning("%s", lost)
            return "lost"
        work = asyncio.create_task(self._work(run.row, job, run), name=f"job {row.id}")
        lease = asyncio.create_task(self._beat(run, deadline))
        try:
            await asyncio.wait({work, lease}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and (ended := lease.result()) is not None:
                run.lost = ended
                work.cancel(str(ended))
            return await work
        except (JobLost, asyncio.CancelledError):
            if run.lost is None:
                raise
            _log.warning("%s", run.lost)
            return "lost"
        finally:
            lease.cancel()
            work.cancel()
            # A plain function cannot be stopped; this process takes no other job until it has ended.
            if run.threads:
                await asyncio.wait(run.threads)

    async def _beat(self, run: Run, deadline: float) -> JobLost | None:
        """Renew the lease while that is possible; why it is not any more, or None: the attempt has ended."""
        while True:
            await asyncio.sleep(self._interval)
            if self._stopping() and not run.stopping:
                run.stopping = True
                _log.info(
                    "the job %s is handed back once its present step has ended: this worker stops", run.id
                )
            sent = monotonic()
            try:
                found = await in_time(self._renewed(run), max(deadline - sent, self._interval))
            except (*SQL_TROUBLE, TimeoutError) as problem:
                if monotonic() >= deadline:
                    return JobLost(run.id, run.fence, f"its lease could not be renewed in SQL ({problem!r})")
            else:
                if found is not True:
                    return None if found is False else found
                deadline = sent + self._safe

    async def _renewed(self, run: Run) -> JobLost | bool:
        """True when the lease is renewed, False when this attempt has ended the job itself."""
        if await self._rows.renew(run.id, run.fence, self._live.declared.lease):
            return True
        row = await self._rows.get(run.id)
        if row is None:
            return JobLost(run.id, run.fence, "its row is gone")
        if row.fence == run.fence:
            return False
        if row.state == "cancelled":
            return JobLost(run.id, run.fence, "it was cancelled")
        return JobLost(run.id, run.fence, f"it is {row.state}, with the fence {row.fence} of {row.worker}")

    async def _work(self, row: JobRow, job: Job[..., Any], run: Run) -> str:
        """Run the function, and write down what came of it."""
        try:
            return await self._done(row, await self._result(row, job, run))
        except JobFailed as failed:
            return await self._end(row, "failed", failed.reason)
        except asyncio.CancelledError:
            if not run.handing_back:
                raise
            return await self._hand_back(row)
        except JobLost as lost:
            run.lost = run.lost or lost
            raise
        except Exception as error:
            if run.lost is not None:
                raise run.lost from error
            if run.handing_back:  # a graph makes an error of its own of a node that was cancelled
                return await self._hand_back(row)
            _log.exception("the job %s (%s), attempt %d", row.id, row.kind, row.attempts)
            problem = f"{type(error).__name__}: {error}"[:_MOST_ERROR]
            if row.attempts >= job.attempts:
                return await self._end(row, "dead", problem)
            delay = job.delay(row.attempts)
            await self._written(row, lambda: self._rows.again(row.id, row.fence, problem, delay))
            return "again"

    async def _result(self, row: JobRow, job: Job[..., Any], run: Run) -> Any:
        """What the function returns within the job's time limit, as plain data."""
        limit = job.time_limit.total_seconds()
        try:
            async with asyncio.timeout(limit) as clock:
                run.resources = await self._resources()
                returned = await job.function(run, **job.typed(row.arguments))
                return msgspec.to_builtins(returned, str_keys=True)
        except TimeoutError:
            if not clock.expired():
                raise
            raise JobTimedOut(row.id, limit, run.current) from None

    async def _done(self, row: JobRow, result: Any) -> str:
        await self._live.close(await self._written(row, lambda: self._rows.finish(row.id, row.fence, result)))
        return "done"

    async def _end(self, row: JobRow, state: State, error: str) -> str:
        _log.error("the job %s (%s) is %s: %s", row.id, row.kind, state, error)
        ended = await self._written(row, lambda: self._rows.give_up(row.id, row.fence, state, error))
        await self._live.close(ended)
        return state

    async def _hand_back(self, row: JobRow) -> str:
        waiting = await self._written(row, lambda: self._rows.hand_back(row.id, row.fence))
        await self._live.announce(waiting)
        return "handed back"

    async def _written(self, row: JobRow, change: Callable[[], Awaitable[JobRow | None]]) -> JobRow:
        """The row after a change of its state; `JobLost` when it was no longer ours to change."""
        changed = await patiently(change)
        if changed is None:
            # When the answer to a first try was lost, what is there with our fence is what we wrote.
            changed = await patiently(lambda: self._rows.get(row.id))
        if changed is None or changed.fence != row.fence:
            raise JobLost(row.id, row.fence, "SQL has a later fence")
        return changed
