"""A kombu consumer that dies after popping a message and before recording it: `lossy_consumer URL QUEUE`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from kombu import Connection, Consumer, Exchange, Queue
from kombu.transport.redis import QoS


def dies(*_: Any) -> None:
    """Exit in the middle of a delivery, as in a crash."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(url: str, name: str) -> None:
    """Receive one message."""
    QoS.append = dies
    queue = Queue(name, Exchange(""), routing_key=name)
    with Connection(url) as connection, Consumer(connection, [queue], callbacks=[dies]):
        connection.drain_events(timeout=10)


if __name__ == "__main__":
    main(*sys.argv[1:])
