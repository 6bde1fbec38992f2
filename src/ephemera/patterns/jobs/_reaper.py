"""The reaper: sends the messages of jobs that wait without one, and of jobs whose worker is gone.

Every worker process can be the reaper, and a lock elects one. Each second it queries, for each queue and up
to a limit:

- rows without a message: enqueued in a transaction or while Redis was down, due for another attempt, or
  running with an expired lease;
- rows whose message is lost: the queue is empty, or a message that was sent later has been delivered already,
  and some seconds have passed. (kombu pops a message and records that it did in two steps; a crash in between
  loses it. A server that lost its data loses them all.)

A superfluous message does no harm: the claim in SQL lets one worker have the job. So messages are sent first
and recorded afterwards, and none is sent twice within `GRACE`. A pass that hangs (on a database connection
that does not answer) is abandoned together with the lock, because another process may reach the database.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError

from ephemera.errors import EphemeraError, StoreClosed
from ephemera.patterns.jobs._run_context import with_timeout
from ephemera.patterns.jobs._runtime import JobBackend

_log = logging.getLogger("ephemera.jobs")
INTERVAL = 1.0  # seconds between two passes
LIMIT = 200  # rows of one queue in one pass
TIMEOUT = 5.0  # seconds for one pass
GRACE = timedelta(seconds=3)
"""How long a job may wait without a message in any queue before its message is considered lost."""


async def run_reaper(backend: JobBackend) -> None:
    """Send missing messages for ever, whenever this process holds the lock."""
    while True:
        try:
            async with backend.store[backend.declaration.leader].hold():
                while True:
                    await with_timeout(send_missing_messages(backend), TIMEOUT)
                    await asyncio.sleep(INTERVAL)
        except StoreClosed:
            return
        except (EphemeraError, SQLAlchemyError, OSError) as problem:  # a TimeoutError is an OSError
            _log.warning("the reaper is paused: %s", problem)
            await asyncio.sleep(INTERVAL)
        except Exception:  # nothing awaits this task, so its end would go unnoticed
            _log.exception("the reaper failed")
            await asyncio.sleep(INTERVAL)


async def send_missing_messages(backend: JobBackend) -> int:
    """Make one pass over all queues; returns how many messages were sent."""
    sent = 0
    for queue in backend.declaration.queues:
        is_empty = await backend.queue_length(queue) == 0
        missing = {
            *await backend.rows.unpublished(queue, LIMIT),
            *await backend.rows.with_lost_message(queue, GRACE, LIMIT, queue_is_empty=is_empty),
        }
        if missing:
            await backend.push_messages(missing)
            await backend.rows.mark_published([job.id for job in missing])
            _log.info("%d messages sent again to the queue %s", len(missing), queue)
        sent += len(missing)
    return sent
