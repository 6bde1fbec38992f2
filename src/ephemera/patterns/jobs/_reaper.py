"""The reaper: sends the messages of jobs that wait without one, and of jobs whose worker is gone.

Every worker process is ready to be it, and one is, by a lock. Each second it looks, for each queue, at most
at so many rows:

- rows that nobody was told of: enqueued in a transaction or while Redis was down, due for another attempt, or
  running with a lease that has lapsed;
- rows whose message is lost: the queue is empty, or a message that was put in it later has been taken
  already, and some seconds have passed. (kombu takes a message out and records that it did in two steps; a
  crash in between loses it. A server that lost its data loses them all.)

A message too many does no harm: the claim in SQL lets one worker have the job. So messages are sent first and
noted after, and nothing is sent twice for the length of the silence. A look that hangs (a connection to SQL
that nobody answers) is given up, and with it the turn: another process may have better luck.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError

from ephemera.errors import EphemeraError, StoreClosed
from ephemera.patterns.jobs._run_context import in_time
from ephemera.patterns.jobs._runtime import BoundJobs

_log = logging.getLogger("ephemera.jobs")
TICK = 1.0  # seconds
MOST = 200  # rows of one queue in one tick
PATIENCE = 5.0  # seconds that a look may take
SILENCE = timedelta(seconds=3)
"""How long a job may have waited for a message that is in no queue, before another is sent."""


async def reap(live: BoundJobs) -> None:
    """Look after lost jobs for ever, whenever it is this process's turn."""
    while True:
        try:
            async with live.store[live.declared.leader].hold():
                while True:
                    await in_time(look(live), PATIENCE)
                    await asyncio.sleep(TICK)
        except StoreClosed:
            return
        except (EphemeraError, SQLAlchemyError, OSError) as problem:  # a TimeoutError is an OSError
            _log.warning("no look for lost jobs: %s", problem)
            await asyncio.sleep(TICK)
        except Exception:  # nobody waits for this task, so nobody would hear of its end
            _log.exception("a look for lost jobs failed")
            await asyncio.sleep(TICK)


async def look(live: BoundJobs) -> int:
    """Send what messages are missing, once; how many there were."""
    sent = 0
    for queue in live.declared.queues:
        empty = await live.queued(queue) == 0
        missing = {
            *await live.rows.due(queue, MOST),
            *await live.rows.overdue(queue, SILENCE, MOST, empty=empty),
        }
        if missing:
            await live.send(missing)
            await live.rows.publish([job.id for job in missing])
            _log.info("%d messages sent again to the queue %s", len(missing), queue)
        sent += len(missing)
    return sent
