"""Whether a large write moves on: no reply can come before its end, and that may take long on a slow line.

A transport's own buffer tells little: the kernel takes megabytes off it at once, and TLS hides it. So the
kernel is asked how much of what it took has arrived at the other end. Only large writes are looked at: small
commands are acknowledged by the kernel of a frozen server, too, and must not make it look alive.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios

_LARGE = 16 * 1024
# Less than this is not progress: it is how kernels ask one that takes no more whether it does again.
_STEP = 4 * 1024
# Where Linux has the number of bytes acknowledged in its tcp_info, a 64-bit integer.
_BYTES_ACKED = 120


class Outflow:
    """What has left through one transport."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._is_tcp = self._socket.family in (socket.AF_INET, socket.AF_INET6)
        self._arrived = 0

    def moved(self, written: int) -> bool:
        """Whether some of a large write arrived since the last time; `written` is all that was, in bytes."""
        waiting = self._transport.get_write_buffer_size()
        if sys.platform == "linux":
            waiting += self._unread()
        arrived = self._acknowledged() if sys.platform == "linux" and self._is_tcp else written - waiting
        if arrived < self._arrived + _STEP:
            return False
        self._arrived = arrived
        return waiting > _LARGE

    def _unread(self) -> int:
        """How many bytes the kernel holds: not acknowledged on TCP, not read on a unix socket."""
        held: tuple[int] = struct.unpack("i", fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, b"\0" * 4))
        return held[0]

    def _acknowledged(self) -> int:
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED + 8)
        acknowledged: tuple[int] = struct.unpack_from("Q", info, _BYTES_ACKED)
        return acknowledged[0]
