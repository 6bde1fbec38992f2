"""The two ways in which workers learn of a job: through SQL alone, or by Celery's messages.

*SQL alone* (`SqlDelivery`). Workers claim rows that are due. Enqueuing publishes the queue's name on a Redis
channel, which wakes them; without Redis, or if that message is lost, they find the row when they poll.

*Celery* (`CeleryDelivery`). A message names the job; Celery's workers receive it. It is put in Celery's queue
here rather than by kombu, which can only block: this way it uses the store's own connection, many messages
share a round trip, and it fails at once when the server is down. Each priority has a list of its own, as with
kombu: its consumers take from the first list that is not empty, the oldest message first.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import ConnectionFailed, InvalidDeclaration, ServerError
from ephemera.keyspace import Store
from ephemera.patterns.jobs._rows import DATABASE_ERRORS, JobRows, QueuedJob

if TYPE_CHECKING:
    from ephemera.patterns.jobs._declaration import Jobs

TASK = "ephemera.jobs.run"
"""The name of the one Celery task."""
NO_CLUSTER = (
    "Celery's queues cannot be on a cluster, because kombu has no transport for one; give them a server of "
    "their own that does not evict, standalone or behind Sentinel, or deliver jobs by SQL"
)
ALL_QUEUES = "*"
"""What the wake channel says when the settings of queues have changed."""
PRIORITY_LEVELS = range(-9, 10)
"""Of a queue's lists with Celery; a level is a priority with the opposite sign."""
PRIORITY_SEPARATOR = "~"
"""Between the name of a queue, in which it cannot be, and a level."""
_MESSAGES = 500  # in one LPUSH
_log = logging.getLogger("ephemera.jobs")


@dataclass(frozen=True)
class CeleryDelivery:
    """Deliver jobs by Celery: `connect(url, catalogue, resources={JOBS: CeleryDelivery(engine)})`.

    Workers then run with `ephemera worker --delivery celery`, and need the extra `celery`.

    Args:
        engine: The engine of the database that has the jobs.

    """

    engine: AsyncEngine


class SqlDelivery:
    """Wakes workers by a Redis channel."""

    publishes = False
    """Whether a job has a message, whose loss a reaper must notice."""

    def __init__(self, declaration: Jobs, store: Store) -> None:
        self._channel = store[declaration.wake]

    async def send(self, jobs: Sequence[QueuedJob]) -> None:
        """Wake workers, once for each queue."""
        for queue in {job.queue for job in jobs}:
            await self.wake(queue)

    async def wake(self, queue: str) -> None:
        """Publish a queue's name; workers poll if that fails."""
        try:
            await self._channel.publish(queue)
        except (ConnectionFailed, ServerError) as problem:
            _log.debug("workers were not woken, and find their jobs when they poll: %s", problem)


class CeleryMessages:
    """Puts messages in Celery's queues."""

    publishes = True

    def __init__(self, declaration: Jobs, store: Store, rows: JobRows) -> None:
        self._client = store.client("queue")
        if self._client.is_cluster:
            raise InvalidDeclaration(declaration.name, NO_CLUSTER, "as in connect(url, ..., queue_url=...)")
        self._declaration = declaration
        self._rows = rows
        self.empty_at: dict[str, datetime] = {}
        """When the reaper of this process last found each queue empty, by the database's clock."""

    async def send(self, jobs: Sequence[QueuedJob]) -> None:
        """Send messages; if that fails, the reaper sends them later.

        The message of a kind that this process does not know, as in a console, is left to the reaper: it
        must say how long an attempt may take.
        """
        known = [job for job in jobs if job.kind in self._declaration.kinds]
        unsent = [job.id for job in jobs if job.kind not in self._declaration.kinds]
        try:
            await self.push(known)
        except (ConnectionFailed, ServerError) as problem:
            _log.warning("%d jobs wait in SQL for their messages: %s", len(known), problem)
            unsent += [job.id for job in known]
        if unsent:
            try:
                await self._rows.mark_unpublished(unsent)
            except DATABASE_ERRORS as problem:  # then the reaper misses their messages, seconds later
                _log.warning("the reaper will miss the messages of %d jobs: %s", len(unsent), problem)

    async def wake(self, queue: str) -> None:
        """Nothing: the reaper sends the messages of a queue that was resumed, within a second."""

    async def push(self, jobs: Iterable[QueuedJob]) -> None:
        """Push a message for each job to its queue; commands of many messages share a round trip."""
        lists: dict[str, list[bytes]] = {}
        for job_id, kind, queue, priority in jobs:
            known, level = self._declaration.kinds.get(kind), priority_level(priority)
            key = self._declaration.queue_key(queue)
            message = _job_message(job_id, kind, key, level, known.hard_limit if known else None)
            lists.setdefault(_list_key(key, level), []).append(message)
        pushes = (
            self._client.call("LPUSH", key, *messages[start : start + _MESSAGES])
            for key, messages in lists.items()
            for start in range(0, len(messages), _MESSAGES)
        )
        await asyncio.gather(*pushes)

    async def queue_length(self, queue: str) -> int:
        """How many messages wait in a queue, of all priorities."""
        key = self._declaration.queue_key(queue)
        lengths = (self._client.call("LLEN", _list_key(key, level)) for level in PRIORITY_LEVELS)
        return sum(map(int, await asyncio.gather(*lengths)))


def priority_level(priority: int) -> int:
    """The level of a priority: kombu takes the lowest first, and has one list for each."""
    return max(PRIORITY_LEVELS[0], min(-priority, PRIORITY_LEVELS[-1]))


def _list_key(queue_key: str, level: int) -> str:
    """The list of a level, as kombu names it."""
    return f"{queue_key}{PRIORITY_SEPARATOR}{level}" if level else queue_key


def _job_message(job_id: str, kind: str, queue_key: str, level: int, hard_limit: timedelta | None) -> bytes:
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
                "priority": level,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
    )
