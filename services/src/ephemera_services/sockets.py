"""The sockets that a service listens on: one place, several times, so that a crowd is let in at once.

uvloop accepts one connection in each turn of its loop. A turn answers all requests that are there, so the
busier a service is, the slower it lets anybody in: some hundred newcomers a second are then more than it
takes, the kernel's queue is full, and who is dropped from it comes back after 1, 3, 7 and 15 seconds. The
same socket under several descriptors is accepted from that often in a turn.
"""

from __future__ import annotations

import socket

import uvicorn

_TIMES = 16


def listeners(config: uvicorn.Config) -> list[socket.socket]:
    """The sockets of a configuration, bound and not listening yet, for `uvicorn.Server.run`."""
    first = config.bind_socket()
    return [first, *(first.dup() for _ in range(_TIMES - 1))]
