"""The jobs of a store and a database: enqueue, look up, cancel, retry, and the settings of queues.

The row comes first and is the source of truth; workers then learn of it by the delivery (`_delivery`) that
the store was opened with. What they did not learn of, they find in SQL.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera._outage_log import OutageLog
from ephemera.errors import (
    ConnectionFailed,
    InvalidDeclaration,
    InvalidValue,
    JobLost,
    ServerError,
    UnknownJob,
)
from ephemera.keyspace import Store
from ephemera.patterns.jobs._checkpoint import Checkpoint, Checkpoints
from ephemera.patterns.jobs._delivery import ALL_QUEUES, CeleryDelivery, CeleryMessages, SqlDelivery
from ephemera.patterns.jobs._enqueue import (
    Enqueued,
    NewJob,
    insert_jobs,
    is_delayed,
    new_job,
)
from ephemera.patterns.jobs._finished_jobs import FinishedCallbacks, JobEnds, Retention, read_result
from ephemera.patterns.jobs._job_definition import Job
from ephemera.patterns.jobs._job_queries import JobQueries, ScheduleRow
from ephemera.patterns.jobs._queues import QueueSettings, QueueTable, Rate, limit_columns
from ephemera.patterns.jobs._rows import JobRows, QueuedJob
from ephemera.patterns.jobs._schedules import ScheduleDispatcher
from ephemera.patterns.jobs._tables import JobRow
from ephemera.sql import CheckedEngine, migrate

if TYPE_CHECKING:
    from ephemera.patterns.jobs._declaration import Jobs

P = ParamSpec("P")

_log = logging.getLogger("ephemera.jobs")


class BoundJobs:
    """The jobs of one store and one database: what `store[JOBS]` gives."""

    def __init__(self, declaration: Jobs, store: Store, delivery: AsyncEngine | CeleryDelivery) -> None:
        self._backend = JobBackend(declaration, store, delivery)
        self.declaration = declaration
        self.store = store
        self.engine = self._backend.engine
        self._queues = QueueTable(declaration.tables, self.engine)
        self._rows, self._queries = self._backend.rows, self._backend.queries
        self._single_statements = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    async def create_tables(self) -> None:
        """Create or upgrade the tables, as `ephemera migrate up` does; safe in many processes at once."""
        await migrate(self.engine, self.declaration)

    async def enqueue(self, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Enqueue a job and return its id. If Redis is down, it runs when Redis is back.

        `job.options(...)` sets how it is enqueued. For a unique job that exists already, its id is
        returned; `get_or_enqueue` also says which it was.
        """
        return (await self.get_or_enqueue(job, *args, **kwargs)).id

    async def get_or_enqueue(self, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue a job unless the same one exists; returns its id, and whether it is new."""
        (done,) = await self._enqueue(None, job, [self._new_job(job, args, kwargs)])
        return done

    async def enqueue_many(
        self,
        job: Job[..., Any],
        arguments: Iterable[Mapping[str, Any]],
        /,
        *,
        sql: AsyncConnection | None = None,
    ) -> list[Enqueued]:
        """Enqueue a job for each of these arguments, all or none of them, in their order.

        Args:
            job: The job, or `job.options(...)`.
            arguments: A mapping of argument names to values for each job.
            sql: A transaction of yours to do it in; as with `enqueue_in`, the jobs run when it has committed.

        """
        if job.enqueue_options.job_id is not None:
            raise InvalidValue(job.kind, "many jobs, which cannot all have one id", "job_id=")
        return await self._enqueue(sql, job, [self._new_job(job, (), dict(each)) for each in arguments])

    async def enqueue_in(
        self, sql: AsyncConnection, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> str:
        """Enqueue a job as part of a transaction: it runs if that commits, within about a second.

        Call `publish` with the id after the commit to have it run at once.
        """
        (done,) = await self._enqueue(sql, job, [self._new_job(job, args, kwargs)])
        return done.id

    async def publish(self, job_id: str) -> None:
        """Send the message of a job that was enqueued in a transaction which has committed, if it is due."""
        row = await self.get(job_id)
        if row.state != "waiting":
            return
        if not self._backend.delivery.publishes or await self._rows.mark_published([job_id]):
            await self._backend.send_message(row)

    async def get(self, job_id: str) -> JobRow:
        """A job as it is in SQL; `UnknownJob` if there is none."""
        row = await self._queries.get(job_id)
        if row is None:
            raise UnknownJob(job_id, "is not in the table")
        return row

    async def find(
        self,
        *,
        states: Sequence[str] = (),
        kind: str | None = None,
        limit: int = 50,
        before: datetime | None = None,
    ) -> list[JobRow]:
        """The newest jobs, optionally of some states, of one kind, or created before a moment.

        Args:
            states: The states; by default all.
            kind: The name of a kind of job; by default all.
            limit: How many at most.
            before: Only jobs created before this moment, for the next page.

        """
        return await self._queries.find(states=states, kind=kind, limit=limit, before=before)

    async def cancel(self, job_id: str) -> JobRow:
        """End a job that waits or runs; its worker stops it within about a second."""
        row = await self._rows.cancel(job_id)
        if row is None:
            raise UnknownJob(job_id, f"has ended already: it is {(await self.get(job_id)).state}")
        await self._backend.finish(row)
        return row

    async def retry(self, job_id: str) -> JobRow:
        """Continue a failed, dead or cancelled job from its last step."""
        try:
            row = await self._rows.retry(job_id)
        except IntegrityError:
            raise UnknownJob(job_id, "cannot be retried: a job with the same unique key is open") from None
        if row is None:
            raise UnknownJob(job_id, f"cannot be retried: it is {(await self.get(job_id)).state}")
        await self._backend.reopen(row)
        await self._backend.send_message(row)
        return row

    async def pause(self, queue: str) -> None:
        """Start no more jobs of a queue, on any worker, from about a second on; running ones continue."""
        await self._queues.set(self._known_queue(queue), paused=True)
        await self._backend.delivery.wake(ALL_QUEUES)

    async def resume(self, queue: str) -> None:
        """Start the jobs of a paused queue again."""
        await self._queues.set(self._known_queue(queue), paused=False)
        await self._backend.delivery.wake(ALL_QUEUES)

    async def set_limits(
        self, queue: str, *, max_running: int | None = None, rate: Rate | None = None
    ) -> None:
        """Limit a queue in all workers together, from about a second on; what is not given is unlimited.

        Args:
            queue: The queue.
            max_running: How many of its jobs run at once.
            rate: How many of its jobs start in a time, as in `(100, timedelta(seconds=1))`.

        """
        columns = limit_columns(self._known_queue(queue), max_running, rate)
        await self._queues.set(queue, **columns)
        await self._backend.delivery.wake(ALL_QUEUES)

    async def queues(self) -> list[QueueSettings]:
        """The settings of all queues, in the order of their declaration."""
        found = await self._queues.load()
        return [found.get(queue, QueueSettings(queue=queue)) for queue in self.declaration.queues]

    def _known_queue(self, queue: str) -> str:
        if queue not in self.declaration.queues:
            known = ", ".join(self.declaration.queues)
            raise InvalidDeclaration(queue, "there is no such queue", f"use one of {known}")
        return queue

    async def result(self, job_id: str, *, timeout: timedelta | None = None) -> Any:
        """Wait for the end of a job, and return its result as the function's return annotation says.

        `JobUnsuccessful` if it failed, died or was cancelled; `JobNotFinished`, a `TimeoutError`, if it has
        not ended after the timeout; `UnknownJob` if there is no such job.

        Args:
            job_id: The job's id.
            timeout: How long to wait; forever by default.

        """
        row = await self._backend.ends.wait(job_id, timeout)
        job = self.declaration.kinds.get(row.kind)
        return read_result(row, Any if job is None else job.type_of("return"))

    async def schedules(self) -> list[ScheduleRow]:
        """The schedules as they are in SQL, with their next runs."""
        return await self._queries.schedules()

    def _new_job(self, job: Job[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        if self.declaration.kinds.get(job.kind) is not job.declared:
            raise InvalidDeclaration(job.kind, "is not one of these jobs", f"{self.declaration!r}")
        return new_job(job, args, kwargs)

    async def _enqueue(
        self, sql: AsyncConnection | None, job: Job[..., Any], new: Sequence[NewJob]
    ) -> list[Enqueued]:
        """Insert jobs: in a transaction of the caller's, or by themselves, and then send their messages."""
        if sql is not None:
            return await insert_jobs(sql, self.declaration.tables, job, new, published=False)
        due = not is_delayed(job.enqueue_options)
        published = due and self._backend.delivery.publishes
        engine = self.engine if len(new) > 1 else self._single_statements
        async with engine.begin() as sql:
            done = await insert_jobs(sql, self.declaration.tables, job, new, published=published)
        if due:
            priority = job.enqueue_options.priority
            new_ids = [each.id for each in done if each.is_new]
            queued = [QueuedJob(each, job.kind, job.queue, priority) for each in new_ids]
            await self._backend.send_messages(queued)
        return done


class JobBackend:
    """What enqueuing, the workers and the reaper share: rows in SQL, checkpoints in Redis, the delivery."""

    def __init__(self, declaration: Jobs, store: Store, delivery: AsyncEngine | CeleryDelivery) -> None:
        by_celery = isinstance(delivery, CeleryDelivery)
        engine = delivery.engine if isinstance(delivery, CeleryDelivery) else delivery
        self.declaration = declaration
        self.store = store
        engine = CheckedEngine(engine, declaration.sql_schema)
        self.engine = engine
        self.callbacks = FinishedCallbacks(declaration.tables, engine, self._finished_callback)
        self._publishes = by_celery
        self.rows = self.rows_on(engine)
        self.queries = JobQueries(declaration.tables, engine)
        self.delivery = (
            CeleryMessages(declaration, store, self.rows) if by_celery else SqlDelivery(declaration, store)
        )
        self.schedules = ScheduleDispatcher(declaration.tables, engine, declaration.schedules)
        self.retention = Retention(declaration.tables, engine, declaration.keep)
        channel = declaration.finished_channel.template.render({})
        self.ends = JobEnds(store.client("queue"), channel, self.queries)
        self._checkpoints = Checkpoints(declaration.checkpoints, declaration.progress, store, channel)
        self.outages = defaultdict[str, OutageLog](lambda: OutageLog(_log))
        """What is logged of tasks that fail again and again, each under its name."""
        store.before_close(self.callbacks.aclose)

    def rows_on(self, engine: AsyncEngine) -> JobRows:
        """The same rows, by another engine of the same database."""
        return JobRows(
            self.declaration.tables, engine, publishes=self._publishes, callback_due=self.callbacks.due
        )

    def checkpoint(self, row: JobRow) -> Checkpoint:
        """The checkpoint of a job, with the fence of its row."""
        return self._checkpoints.open(row.id, row.fence, row.worker or "")

    async def finish(self, row: JobRow) -> None:
        """Empty the checkpoint of a job that has ended, publish its last event, and call `on_finished`.

        Failures are logged: the job's end is in SQL already.
        """
        declaration = self.declaration
        try:
            event = declaration.final_event(row) if declaration.final_event else None
            await self.checkpoint(row)._end(event=event)
        except (ConnectionFailed, ServerError, JobLost) as problem:
            _log.warning("the end of job %s is recorded in SQL only: %s", row.id, problem)
        except Exception:  # from the application's `final_event`
            _log.exception("`final_event` failed for job %s", row.id)
        if declaration.finished_callback is not None:
            await self.callbacks.call(row)

    async def reopen(self, row: JobRow) -> None:
        """Let the progress of a job that is retried continue after its end; a failure is logged."""
        try:
            await self.checkpoint(row)._begin()
        except (ConnectionFailed, ServerError, JobLost) as problem:  # lost: a worker has it already
            _log.info("the progress of job %s continues with its next event: %s", row.id, problem)

    def _finished_callback(self) -> Callable[[JobRow], Awaitable[None]] | None:
        callback = self.declaration.finished_callback
        return None if callback is None else partial(callback, self.store, self.engine)

    async def send_message(self, job: QueuedJob | JobRow) -> None:
        """Let workers know of a job; if that fails, they find it later in SQL."""
        await self.send_messages([job])

    async def send_messages(self, jobs: Sequence[QueuedJob | JobRow]) -> None:
        """Let workers know of jobs."""
        await self.delivery.send([QueuedJob(job.id, job.kind, job.queue, job.priority) for job in jobs])
