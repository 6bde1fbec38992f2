"""Detects a stalled server: something waits for a reply, and for `timeout` seconds nothing has moved.

Progress counts, not age. Bytes that arrive are progress, and so is a large write that moves on: no reply can
come before its end, and on a slow line that may take long. One timer per connection is enough.

A transport's buffer says little about a write: the kernel takes megabytes off it at once, and TLS hides it.
So the kernel is asked how much of what it took has arrived at the peer. Only large writes are looked at: the
kernel of a frozen server acknowledges small commands too, and they must not make it look alive.

Silence is expected while a slow call of our own, such as a long script, may be keeping the server busy.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Callable, Sized

_LARGE = 16 * 1024
# Fewer bytes are not progress: kernels send as much to probe a peer whose receive window is full.
_STEP = 4 * 1024
# The offset of the number of acknowledged bytes, a 64-bit integer, in Linux's tcp_info.
_BYTES_ACKED = 120


class StallDetector:
    """Watches one connection while commands wait for replies."""

    __slots__ = (
        "_is_expected",
        "_loop",
        "_on_stall",
        "_progress",
        "_suspected",
        "_timeout",
        "_timer_due",
        "_transport",
        "_waiting",
        "progress_at",
        "timer",
        "written",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        timeout: float,
        waiting: Sized,
        on_stall: Callable[[str], None],
        is_expected: Callable[[], bool],
    ) -> None:
        self.progress_at = 0.0
        """When something moved last, in the loop's time; the connection sets it."""
        self.written = 0
        """Bytes handed to the transport; the connection counts them."""
        self.timer: asyncio.TimerHandle | None = None
        self._loop = loop
        self._transport = transport
        self._timeout = timeout
        self._waiting = waiting
        self._on_stall = on_stall
        self._is_expected = is_expected
        self._progress = _WriteProgress(transport)
        self._suspected = -1.0
        self._timer_due = 0.0

    def start(self) -> None:
        """Start to watch; called with each write while there is no `timer`."""
        self._check_after(self._timeout / 4)

    def stop(self) -> None:
        """Stop to watch."""
        if self.timer is not None:
            self.timer.cancel()

    def _check_after(self, seconds: float) -> None:
        self._timer_due = self._loop.time() + seconds
        self.timer = self._loop.call_later(seconds, self._check)

    def _check(self) -> None:
        self.timer = None
        if not self._waiting or self._transport.is_closing():
            return
        now = self._loop.time()
        if self._progress.has_advanced(self.written) or self._is_expected():
            self.progress_at = now
        left = self.progress_at + self._timeout - now
        if left > 0:
            self._check_after(min(left, self._timeout / 4))
        elif self._suspected != self.progress_at:
            # A loop that was held up by its own work runs its timers before it reads its sockets: check
            # twice. If it was held up for long, the machine may have been suspended, and the server with it:
            # then the server gets the whole timeout again.
            self._suspected = self.progress_at
            self._check_after(self._timeout if now - self._timer_due > self._timeout / 2 else 0.002)
        else:
            self._on_stall(f"no answer for {self._timeout * 1000:.0f} ms")


class _WriteProgress:
    """How far large writes have got through one transport."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._is_tcp = self._socket.family in (socket.AF_INET, socket.AF_INET6)
        self._arrived = 0

    def has_advanced(self, written: int) -> bool:
        """Whether some of a large write arrived since the last call; `written` is the total, in bytes."""
        outstanding = self._transport.get_write_buffer_size()
        if sys.platform == "linux":
            outstanding += self._in_kernel()
        is_countable = sys.platform == "linux" and self._is_tcp
        arrived = self._acknowledged() if is_countable else written - outstanding
        if arrived < self._arrived + _STEP:
            return False
        self._arrived = arrived
        return outstanding > _LARGE

    def _in_kernel(self) -> int:
        """Bytes that the kernel holds: not acknowledged on TCP, not read on a unix socket."""
        held: tuple[int] = struct.unpack("i", fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, b"\0" * 4))
        return held[0]

    def _acknowledged(self) -> int:
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED + 8)
        acknowledged: tuple[int] = struct.unpack_from("Q", info, _BYTES_ACKED)
        return acknowledged[0]
