"""A consumer of kombu that dies when it took a message and has not noted it: `lossy_consumer URL QUEUE`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from kombu import Connection, Consumer, Exchange, Queue
from kombu.transport.redis import QoS


def dies(*_: Any) -> None:
    """End in the middle of a delivery, as a crash may."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(url: str, name: str) -> None:
    """Take one message."""
    QoS.append = dies
    queue = Queue(name, Exchange(""), routing_key=name)
    with Connection(url) as connection, Consumer(connection, [queue], callbacks=[dies]):
        connection.drain_events(timeout=10)


if __name__ == "__main__":
    main(*sys.argv[1:])
