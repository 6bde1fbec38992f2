"""Jobs of a store and a database: enqueue, look up, cancel, retry.

The row comes first and is the truth; the message only says that there is one. A message that could not be
sent, or that is lost, is sent again from the row by the reaper of any worker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec
from uuid import uuid4

from ephemera.errors import ConnectionFailed, InvalidDeclaration, JobLost, ServerError, UnknownJob
from ephemera.keyspace import Store
from ephemera.patterns.jobs._checkpoints import Checkpoint
from ephemera.patterns.jobs._job_definition import Job
from ephemera.patterns.jobs._messages import message
from ephemera.patterns.jobs._rows import SQL_TROUBLE, JobRow, Rows, Waiting

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from ephemera.patterns.jobs._declaration import Jobs

P = ParamSpec("P")

NO_CLUSTER = (
    "Celery's queues cannot be on a cluster, because kombu has no transport for one; give them a server of "
    "their own that does not evict, standalone or behind Sentinel"
)
_log = logging.getLogger("ephemera.jobs")


class BoundJobs:
    """The jobs of one store and one database."""

    def __init__(self, declared: Jobs, store: Store, engine: AsyncEngine) -> None:
        if store.client("queue").is_cluster:
            raise InvalidDeclaration(declared.name, NO_CLUSTER, "as in connect(url, ..., queue_url=...)")
        self.declared = declared
        self.store = store
        self.engine = engine
        self.rows = Rows(declared.tables, engine)
        self._checkpoints = store[declared]
        self._queues = store.client("queue")
        store.adopt(self)

    async def create_tables(self) -> None:
        """Create the tables that are not there; migrations are the better way to."""
        async with self.engine.begin() as sql:
            await sql.run_sync(self.declared.metadata.create_all, tables=list(self.declared.tables))

    async def enqueue(self, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Have a job run, and return its id. With Redis down it is run when that is back."""
        job_id, values = self._row(job, args, kwargs)
        await self.rows.add(None, values, published=True)
        await self.announce(Waiting(job_id, job.kind, job.queue))
        return job_id

    async def enqueue_in(
        self, sql: AsyncConnection, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> str:
        """The same as part of a transaction: the job is run if that commits, within about a second.

        Call `publish` with the id after the commit to have it run at once.
        """
        job_id, values = self._row(job, args, kwargs)
        await self.rows.add(sql, values, published=False)
        return job_id

    async def publish(self, job_id: str) -> None:
        """Tell the workers of a job that was enqueued in a transaction which has committed."""
        row = await self.get(job_id)
        if row.state == "waiting":
            await self.rows.publish([job_id])
            await self.announce(row)

    async def get(self, job_id: str) -> JobRow:
        """A job as SQL has it; `UnknownJob` when there is none."""
        row = await self.rows.get(job_id)
        if row is None:
            raise UnknownJob(job_id, "is not in the table")
        return row

    async def cancel(self, job_id: str) -> JobRow:
        """End a job that waits or runs; its worker is told within about a second."""
        row = await self.rows.cancel(job_id)
        if row is None:
            raise UnknownJob(job_id, f"has ended already: it is {(await self.get(job_id)).state}")
        await self.close(row)
        return row

    async def retry(self, job_id: str) -> JobRow:
        """Have a failed, dead or cancelled job go on from its last step."""
        row = await self.rows.retry(job_id)
        if row is None:
            raise UnknownJob(job_id, f"cannot be retried: it is {(await self.get(job_id)).state}")
        await self.announce(row)
        return row

    def checkpoint(self, row: JobRow) -> Checkpoint:
        """The checkpoint of a job, with the fence of its row."""
        return self._checkpoints.of(row.id, row.fence, row.worker or "")

    async def close(self, row: JobRow) -> None:
        """Empty the checkpoint of a job that has ended, and tell of its end; not worth failing for."""
        try:
            event = self.declared.ended(row) if self.declared.ended else None
            await self.checkpoint(row).end(event=event)
        except (ConnectionFailed, ServerError, JobLost) as problem:
            _log.warning("the end of the job %s is in SQL alone: %s", row.id, problem)
        except Exception:  # `ended` is the application's
            _log.exception("the last event of the job %s could not be made", row.id)
        if self.declared.conclude is not None:
            try:
                await self.declared.conclude(self.store, self.engine, row)
            except Exception:  # it is the application's, too
                _log.exception("what follows the end of the job %s could not be done", row.id)

    async def announce(self, job: Waiting | JobRow) -> None:
        """Send a job's message; when that fails, the reaper finds its row, at once or by its silence.

        The message of a kind that this process does not know, as in a console, is left to the reaper: it
        must say how long an attempt may take.
        """
        if job.kind not in self.declared.kinds:
            await self.rows.unpublish([job.id])
            return
        try:
            await self.send([Waiting(job.id, job.kind, job.queue)])
        except (ConnectionFailed, ServerError) as problem:
            _log.warning("the job %s waits in SQL for its message: %s", job.id, problem)
            with suppress(*SQL_TROUBLE):  # then it is found by its silence
                await self.rows.unpublish([job.id])

    async def send(self, jobs: Iterable[Waiting]) -> None:
        """Put a message in the queue of each."""
        for queue, messages in self._by_queue(jobs).items():
            await self._queues.call("LPUSH", queue, *messages)

    async def queued(self, queue: str) -> int:
        """How many messages wait in a queue."""
        return int(await self._queues.call("LLEN", self.declared.queue_key(queue)))

    def _by_queue(self, jobs: Iterable[Waiting]) -> dict[str, list[bytes]]:
        found: dict[str, list[bytes]] = {}
        for job_id, kind, queue in jobs:
            key, known = self.declared.queue_key(queue), self.declared.kinds.get(kind)
            limit = known.hard_limit if known else None
            found.setdefault(key, []).append(message(job_id, kind, key, limit))
        return found

    def _row(
        self, job: Job[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        if self.declared.kinds.get(job.kind) is not job:
            raise InvalidDeclaration(job.kind, "is not one of these jobs", f"{self.declared!r}")
        job_id = str(uuid4())
        arguments = job.arguments(args, kwargs)
        return job_id, {"id": job_id, "kind": job.kind, "queue": job.queue, "arguments": arguments}
