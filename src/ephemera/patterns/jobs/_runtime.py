"""The jobs of a store and a database: enqueue, look up, cancel, retry.

The row comes first and is the source of truth; the message only says that it exists. A message that could not
be sent, or was lost, is sent again from the row by the reaper of any worker.

The message is put in Celery's queue here rather than by kombu, which can only block: this way it uses the
store's own connection, many messages share a round trip, and it fails at once when the server is down.
"""

from __future__ import annotations

import base64
import logging
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec
from uuid import uuid4

import msgspec
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from ephemera.errors import (
    ConnectionFailed,
    InvalidDeclaration,
    InvalidUrl,
    JobLost,
    ServerError,
    UnknownJob,
)
from ephemera.keyspace import Store
from ephemera.patterns.jobs._checkpoint import Checkpoint, Checkpoints
from ephemera.patterns.jobs._job_definition import Job, encode_arguments
from ephemera.patterns.jobs._job_queries import JobQueries
from ephemera.patterns.jobs._rows import DATABASE_ERRORS, JobRow, JobRows, QueuedJob

if TYPE_CHECKING:
    from ephemera.patterns.jobs._declaration import Jobs

P = ParamSpec("P")

TASK = "ephemera.jobs.run"
"""The name of the one Celery task."""
NO_CLUSTER = (
    "Celery's queues cannot be on a cluster, because kombu has no transport for one; give them a server of "
    "their own that does not evict, standalone or behind Sentinel"
)
_EXAMPLE = "as in postgresql://user:password@host/database"
_TIMEOUTS: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}
"""A server that vanished without closing its connections is given up after ten seconds, not two hours."""
_log = logging.getLogger("ephemera.jobs")


def sql_engine(url: str) -> AsyncEngine:
    """An engine for a PostgreSQL URL, by psycopg; each connection is tested before it is used."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # its text repeats the URL
        raise InvalidUrl(f"the database URL cannot be read; {_EXAMPLE}") from None
    if parsed.get_backend_name() != "postgresql":
        raise InvalidUrl(f"jobs are stored in PostgreSQL, not in {parsed.get_backend_name()}; {_EXAMPLE}")
    return create_async_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={name: value for name, value in _TIMEOUTS.items() if name not in parsed.query},
    )


class BoundJobs:
    """The jobs of one store and one database: what `store[JOBS]` gives."""

    def __init__(self, declaration: Jobs, store: Store, engine: AsyncEngine) -> None:
        self.declaration = declaration
        self.store = store
        self.engine = engine
        self._backend = JobBackend(declaration, store, engine)
        self._rows, self._queries = self._backend.rows, self._backend.queries

    async def create_tables(self) -> None:
        """Create the tables that do not exist yet; in production, use migrations."""
        async with self.engine.begin() as sql:
            await sql.run_sync(self.declaration.metadata.create_all, tables=list(self.declaration.tables))

    async def enqueue(self, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Enqueue a job and return its id. If Redis is down, it runs when Redis is back."""
        job_id, values = self._new_row(job, args, kwargs)
        await self._rows.add(None, values, published=True)
        await self._backend.send_message(QueuedJob(job_id, job.kind, job.queue))
        return job_id

    async def enqueue_in(
        self, sql: AsyncConnection, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> str:
        """Enqueue a job as part of a transaction: it runs if that commits, within about a second.

        Call `publish` with the id after the commit to have it run at once.
        """
        job_id, values = self._new_row(job, args, kwargs)
        await self._rows.add(sql, values, published=False)
        return job_id

    async def publish(self, job_id: str) -> None:
        """Send the message of a job that was enqueued in a transaction which has committed."""
        row = await self.get(job_id)
        if row.state == "waiting":
            await self._rows.mark_published([job_id])
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
        """The newest jobs, optionally of some states, of one kind, or created before a moment."""
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
        row = await self._rows.retry(job_id)
        if row is None:
            raise UnknownJob(job_id, f"cannot be retried: it is {(await self.get(job_id)).state}")
        await self._backend.send_message(row)
        return row

    def _new_row(
        self, job: Job[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        if self.declaration.kinds.get(job.kind) is not job:
            raise InvalidDeclaration(job.kind, "is not one of these jobs", f"{self.declaration!r}")
        job_id = str(uuid4())
        arguments = encode_arguments(job, args, kwargs)
        return job_id, {"id": job_id, "kind": job.kind, "queue": job.queue, "arguments": arguments}


class JobBackend:
    """What enqueuing, the workers and the reaper share: rows in SQL, checkpoints and queues in Redis."""

    def __init__(self, declaration: Jobs, store: Store, engine: AsyncEngine) -> None:
        self._queues = store.client("queue")
        if self._queues.is_cluster:
            raise InvalidDeclaration(declaration.name, NO_CLUSTER, "as in connect(url, ..., queue_url=...)")
        self.declaration = declaration
        self.store = store
        self.engine = engine
        self.rows = JobRows(declaration.tables, engine)
        self.queries = JobQueries(declaration.tables, engine)
        self._checkpoints = Checkpoints(declaration.checkpoints, declaration.progress, store)

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
            try:
                await declaration.finished_callback(self.store, self.engine, row)
            except Exception:
                _log.exception("`on_finished` failed for job %s", row.id)

    async def send_message(self, job: QueuedJob | JobRow) -> None:
        """Send a job's message; if that fails, the reaper sends it later.

        The message of a kind that this process does not know, as in a console, is left to the reaper: it
        must say how long an attempt may take.
        """
        if job.kind not in self.declaration.kinds:
            await self.rows.mark_unpublished([job.id])
            return
        try:
            await self.push_messages([QueuedJob(job.id, job.kind, job.queue)])
        except (ConnectionFailed, ServerError) as problem:
            _log.warning("job %s waits in SQL for its message: %s", job.id, problem)
            with suppress(*DATABASE_ERRORS):  # then the reaper misses its message, seconds later
                await self.rows.mark_unpublished([job.id])

    async def push_messages(self, jobs: Iterable[QueuedJob]) -> None:
        """Push a message for each job to its queue."""
        by_queue: dict[str, list[bytes]] = {}
        for job_id, kind, queue in jobs:
            key, known = self.declaration.queue_key(queue), self.declaration.kinds.get(kind)
            message = _job_message(job_id, kind, key, known.hard_limit if known else None)
            by_queue.setdefault(key, []).append(message)
        for key, messages in by_queue.items():
            await self._queues.call("LPUSH", key, *messages)

    async def queue_length(self, queue: str) -> int:
        """How many messages wait in a queue."""
        return int(await self._queues.call("LLEN", self.declaration.queue_key(queue)))


def _job_message(job_id: str, kind: str, queue_key: str, hard_limit: timedelta | None) -> bytes:
    """The Celery message that makes a worker run a job; its process is killed after the hard limit."""
    task_id = str(uuid4())  # not the job's: a worker may receive two messages of one job
    limit = None if hard_limit is None else hard_limit.total_seconds()
    arguments: Any = [[job_id], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    return msgspec.json.encode(
        {
            "body": base64.b64encode(msgspec.json.encode(arguments)).decode(),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {
                "lang": "py",
                "task": TASK,
                "id": task_id,
                "root_id": task_id,
                "parent_id": None,
                "group": None,
                "shadow": kind,
                "eta": None,
                "expires": None,
                "retries": 0,
                "timelimit": [limit, None],
                "argsrepr": f"({job_id!r},)",
                "kwargsrepr": "{}",
                "origin": f"ephemera@{socket.gethostname()}",
                "ignore_result": True,
            },
            "properties": {
                "correlation_id": task_id,
                "reply_to": "",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue_key},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
    )
