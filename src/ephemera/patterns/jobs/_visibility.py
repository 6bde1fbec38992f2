"""The worker's sign of life: its parent process keeps the messages of running jobs from being restored.

kombu's Redis transport scores each message that was delivered by when that was, and restores those that are
older than the visibility timeout. Nothing renews the score, so a job longer than the timeout is delivered
again while it runs, and a timeout that is long enough for every job makes a dead worker's jobs wait as
long.

Here the parent, which every worker has and no job can block, sets the score of all its messages anew every
two seconds. So a timeout of 8 s does for jobs of any length. A message that was acknowledged meanwhile
stays gone.
"""

from __future__ import annotations

import logging
from time import time
from typing import Any

from celery import bootsteps
from celery.worker import state

RENEWAL = 2.0  # seconds
_log = logging.getLogger("ephemera.jobs")


class KeepVisible(bootsteps.StartStopStep):  # type: ignore[misc]
    """Renews the visibility of a consumer's messages, by the timer of its event loop."""

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Begin with the connection."""
        self._timer = consumer.timer.call_repeatedly(RENEWAL, renew, (consumer,))

    def stop(self, _: Any) -> None:
        """End with it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def renew(consumer: Any) -> None:
    """Set the score of every message whose job this worker has.

    Not of what kombu holds as delivered: a message stays there whose acknowledgement failed.
    """
    channel = consumer.task_consumer.channel
    tags = [request.message.delivery_tag for request in list(state.reserved_requests)]
    if tags:
        now = time()  # as kombu does: it compares the scores with a worker's clock
        try:
            with channel.conn_or_acquire() as client:
                client.zadd(channel.unacked_index_key, dict.fromkeys(tags, now), xx=True)
        except channel.connection_errors as problem:
            _log.warning("the messages of running jobs were not renewed: %s", problem)
