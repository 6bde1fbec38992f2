"""The reaper: does the upkeep of the jobs, and sends Celery's messages that are missing.

Every worker process can be the reaper, and a lock elects one. Each second it enqueues the jobs of schedules,
repeats calls of `on_finished` that their process did not finish, and deletes old rows. Each part of this
upkeep fails by itself: a table that is missing or a slow query of one does not stop the others, or the
messages. Without Redis there is no lock, and a server that is full, or has something else under the lock's
key, grants none. Then each worker does the work, whose every part SQL guards.

With Celery it also queries, for each queue:

- rows without a message: enqueued in a transaction or while Redis was down, due for another attempt, or
  running with an expired lease;
- rows whose message is lost: the queue was empty since, or a message that was sent later has been delivered,
  and some seconds have passed. (kombu pops a message and records that it did in two steps; a crash in between
  loses it. A server that lost its data loses them all.)

It sends all of them in large batches, each one read, one pipeline of pushes and one UPDATE. A paused queue
gets no messages, and a limited one as many as it has places.

A superfluous message does no harm: the claim in SQL lets one worker have the job. So messages are sent first
and recorded afterwards, and none is sent twice within `GRACE`. A pass that hangs (on a database connection
that does not answer) is abandoned together with the lock, because another process may reach the database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from ephemera._outage_log import OutageLog
from ephemera.errors import EphemeraError, LockTimeout, StoreClosed
from ephemera.keyspace import REDIS_ERRORS
from ephemera.patterns.jobs._delivery import CeleryMessages
from ephemera.patterns.jobs._queues import QueueTable
from ephemera.patterns.jobs._run_context import with_timeout
from ephemera.patterns.jobs._runtime import JobBackend

_log = logging.getLogger("ephemera.jobs")
INTERVAL = 1.0  # seconds between two passes
BATCH = 2000  # messages
TIMEOUT = 10.0  # seconds for one pass
_LOCK_TIMEOUT = 5.0  # seconds after which a process that waits for the lock looks who has it
_NO_LIFETIME = -1
OVERDUE = timedelta(seconds=5)
"""How late a run is when other workers than the leader enqueue it."""
GRACE = timedelta(seconds=3)
"""How long a job may wait without a message in any queue before its message is considered lost."""


async def run_reaper(backend: JobBackend) -> None:
    """Send missing messages forever, whenever this process holds the lock."""
    overdue = asyncio.create_task(_dispatch_overdue(backend), name="ephemera-job-schedules")
    try:
        await _lead(backend)
    finally:
        overdue.cancel()
        await asyncio.gather(overdue, return_exceptions=True)


async def _dispatch_overdue(backend: JobBackend) -> None:
    """Dispatch schedules that the leader does not know, because it is of another version."""
    outage = backend.outages["overdue schedules"]
    while True:
        await asyncio.sleep(OVERDUE.total_seconds())
        try:
            await with_timeout(backend.schedules.dispatch(overdue=OVERDUE), TIMEOUT)
            outage.regain(backend, "overdue schedules: dispatched again")
        except Exception as problem:  # nothing awaits this task, so its end would go unnoticed
            _log_failure(outage, backend, "overdue schedules: postponed: %s", problem)


async def _lead(backend: JobBackend) -> None:
    outage, timeout = backend.outages["reaper"], _LOCK_TIMEOUT
    while True:
        try:
            if await _lead_or_wait(backend, timeout):
                outage.regain(backend, "the reaper continues: another process is the leader")
                timeout = _LOCK_TIMEOUT
                continue
            outage.lose(backend, "the reaper works without its lock: another program's value has its key")
            timeout = 0.0
            await _work_without_lock(backend)
        except StoreClosed:
            return
        except REDIS_ERRORS as problem:
            _log_failure(outage, backend, "the reaper works without its lock: %s", problem)
            await _work_without_lock(backend)
        except Exception as problem:  # nothing awaits this task, so its end would go unnoticed
            _log_failure(outage, backend, "the reaper is paused: %s", problem)
        await asyncio.sleep(INTERVAL)


async def _lead_or_wait(backend: JobBackend, timeout: float) -> bool:
    """Lead while this process has the lock; after the timeout, return whether another process has it."""
    locks = backend.declaration.leader
    try:
        async with backend.store[locks].hold(timeout=timeout):
            while True:
                await with_timeout(run_upkeep(backend), TIMEOUT)
                await with_timeout(send_missing_messages(backend), TIMEOUT)
                backend.outages["reaper"].regain(backend, "the reaper continues")
                await asyncio.sleep(INTERVAL)
    except LockTimeout as busy:
        left = await backend.store.client(locks.role).call("PTTL", busy.key)
        return int(left) != _NO_LIFETIME and int(left) <= (locks.keyspace.lifetime.milliseconds or 0)


async def _work_without_lock(backend: JobBackend) -> None:
    """Make a pass that other processes may make, too: SQL refuses what would be done twice."""
    outage = backend.outages["reaper without a lock"]
    try:
        await with_timeout(run_upkeep(backend, overdue=timedelta(0)), TIMEOUT)
        await with_timeout(send_missing_messages(backend), TIMEOUT)
        outage.forget(backend)
    except Exception as problem:
        _log_failure(outage, backend, "the reaper cannot work without its lock: %s", problem)


def _log_failure(outage: OutageLog, part: object, message: str, problem: Exception) -> None:
    """Log the first of several failures, with a traceback if it is unexpected."""
    if isinstance(problem, (EphemeraError, SQLAlchemyError, OSError)):  # a TimeoutError is an OSError
        outage.lose(part, message, problem)
    else:
        outage.lose(part, message, problem, level=logging.ERROR, exc_info=problem)


async def send_missing_messages(backend: JobBackend, queues: Sequence[str] = ()) -> int:
    """Make one pass over these queues, or all; returns how many messages were sent."""
    messages = backend.delivery
    if not isinstance(messages, CeleryMessages):
        return 0
    table = QueueTable(backend.declaration.tables, backend.engine)
    settings, began = await table.load(), await backend.rows.now()
    sent = 0
    for queue in queues or backend.declaration.queues:
        waiting, limit = await messages.queue_length(queue), None
        limits = settings.get(queue)
        if limits is not None and limits.paused:
            continue
        if limits is not None and limits.is_limited:
            limit = await table.free_places(queue, BATCH) - waiting
        if not waiting:
            messages.empty_at[queue] = began
        sent += await _send_missing(backend, messages, queue, limit)
    return sent


async def _send_missing(backend: JobBackend, messages: CeleryMessages, queue: str, limit: int | None) -> int:
    """Send the missing messages of one queue, at most `limit` if there is one."""
    sent, rows = 0, backend.rows
    while (size := BATCH if limit is None else min(BATCH, limit - sent)) > 0:
        unsent = await rows.unpublished(queue, size)
        lost = await rows.with_lost_message(queue, GRACE, size, empty_at=messages.empty_at.get(queue))
        missing = list(dict.fromkeys([*unsent, *lost]))[:size]
        if not missing:
            break
        await messages.push(missing)
        await rows.mark_published([job.id for job in missing])
        sent += len(missing)
    if sent:
        _log.info("%d messages sent again to the queue %s", sent, queue)
    return sent


async def run_upkeep(backend: JobBackend, *, overdue: timedelta | None = None) -> None:
    """Make one pass; call it each second, in one process at a time.

    A process that does not hold the lock gives `overdue`; see `ScheduleDispatcher.dispatch`.
    """
    parts: dict[str, Callable[[], Awaitable[object]]] = {
        "schedules": partial(backend.schedules.dispatch, overdue=overdue),
        "calls of on_finished": backend.callbacks.call_due,
        "deletion of old jobs": backend.retention.delete_if_due,
    }
    for what, part in parts.items():
        try:
            await part()
            backend.outages[what].regain(backend, f"{what}: continued")
        except Exception as problem:
            _log_failure(backend.outages[what], backend, f"{what}: postponed: %s", problem)
