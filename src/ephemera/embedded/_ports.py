"""Free ports on loopback, for servers that may be restarted on the same one.

They are chosen below the system's ephemeral range. A port in that range can be lost while its server is down:
to any client that gets it as its local port, even to one that tries to reach that very server and, on
loopback, connects to itself.

A port that was handed out stays reserved by its process, even while no server listens on it, so two programs
that start servers side by side never choose the same one. The reservation is an abstract Unix socket named
after the port, which the kernel releases when the process ends. Outside Linux there are none, and only the
server's own bind decides.
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
"""The address every embedded server listens on."""
LOWEST = 10_240
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL = 32_768
ATTEMPTS = 5  # with new ports each
MOST_RESERVED = 512  # ports of one process; the oldest are released

_reserved: deque[int] = deque()  # file descriptors, oldest first


def start_on_free_ports(start: Callable[[], Started]) -> Started:
    """Call `start`, and again if another process took the ports it chose before its servers could bind."""
    for _ in range(ATTEMPTS - 1):
        try:
            return start()
        except PortInUse:
            continue
    return start()


def free_ports(count: int) -> list[int]:
    """Return ports that are neither in use nor reserved; the server's own bind still decides."""
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
    """Whether a server could listen on this port of loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _reserve(port: int) -> bool:
    """Reserve a port for this process; False if another process has it."""
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
