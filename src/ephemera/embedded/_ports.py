"""Free ports on loopback, for servers that may have to be restarted on the same one.

They are taken below the system's range for outgoing connections. A port inside it can be lost while
its server is down: to any client that happens to get it as its own port, even to one that tries to
reach that very server and, on loopback, connects to itself.

A port that was given out stays reserved by its process, also while nobody listens there: two programs that
start servers side by side never choose the same one. The reservation is an abstract Unix socket named after
the port, which the kernel takes back when the process ends; where there are none (outside Linux) the server's
own bind is all there is.
"""

from __future__ import annotations

import os
import random
import socket
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ephemera.errors import PortInUse

Started = TypeVar("Started")

LOOPBACK = "127.0.0.1"
LOWEST = 10_240
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL = 32_768
ATTEMPTS = 5  # times that new ports are tried before giving up
MOST_RESERVED = 512  # ports of one process; the oldest are given back

_reserved: deque[int] = deque()  # file descriptors, oldest first


def on_free_ports(start: Callable[[], Started]) -> Started:
    """Call `start`, again when the ports it chose were taken before its servers had them."""
    for _ in range(ATTEMPTS - 1):
        try:
            return start()
        except PortInUse:
            continue
    return start()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on or was given; the server's own bind has the last word."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(LOWEST, max(first_ephemeral(), LOWEST + 1000))
        if port not in ports and is_free(port) and _reserve(port):
            ports.append(port)
    return ports


def first_ephemeral() -> int:
    """Return the lowest port the system gives to outgoing connections."""
    try:
        return int(RANGE.read_text().split()[0])
    except (OSError, ValueError):
        return DEFAULT_EPHEMERAL


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this port of loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _reserve(port: int) -> bool:
    """Keep a port for this process; tell whether it was still to be had."""
    if sys.platform != "linux":
        return True
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0ephemera-port-{port}")
    except OSError:
        mark.close()
        return False
    _reserved.append(mark.detach())
    if len(_reserved) > MOST_RESERVED:
        os.close(_reserved.popleft())
    return True
