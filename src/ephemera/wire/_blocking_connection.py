"""A connection that the calling thread drives itself: it writes, blocks for the replies, and reads them.

It has no event loop and no other callers, so an exchange costs a few system calls and no hand-over between
threads. The client opens it (`NodeClient.open_blocking`) with the handshake of every other connection and
detaches it from the loop. One that has failed, or was interrupted in the middle of an exchange, is of no
further use: a reply may still arrive.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import hiredis

from ephemera.errors import OutcomeUnknown, ServerError, Unavailable
from ephemera.wire._commands import READS, command_name
from ephemera.wire._connection import PROTOCOL_ERRORS
from ephemera.wire._link import reply_error
from ephemera.wire._packed_commands import unpack_command
from ephemera.wire._prompt_socket import prompt_calls

_INCOMPLETE = object()
_IDLE = 0.5  # seconds after which a connection is looked at before it is used: the server may have closed it
_STALLED = "the server did not answer in time"


@dataclass
class DetachedSocket:
    """A connected socket that has left its loop, for a thread to take over."""

    address: str
    descriptor: int
    timeout: float
    is_outdated: Callable[[], bool]
    """Whether the client has reconnected since."""
    is_busy: Callable[[], bool]
    """Whether the server works on a slow call of ours, so that its silence is not a failure."""

    def connect(self) -> BlockingConnection:
        """The connection, created by the thread that will use it."""
        return BlockingConnection(self)

    def __del__(self) -> None:
        if self.descriptor >= 0:  # its thread was interrupted
            os.close(self.descriptor)


class BlockingConnection:
    """One detached socket to a server, for one thread at a time."""

    def __init__(self, detached: DetachedSocket) -> None:
        self._address = detached.address
        # Taken first: a signal between the two lines may leave it open, but not let it be closed twice, by
        # then perhaps as the descriptor of another.
        descriptor, detached.descriptor = detached.descriptor, -1
        self._socket = socket.socket(fileno=descriptor)
        limit_blocking(self._socket, detached.timeout)
        self._is_outdated, self._is_busy = detached.is_outdated, detached.is_busy
        self._send, self._receive = prompt_calls(self._socket, is_plain=not _is_gevents(self._socket))
        reader = hiredis.Reader(replyError=ServerError, notEnoughData=_INCOMPLETE)
        self._feed, self._gets = reader.feed, reader.gets
        self._used_at = monotonic()

    def is_usable(self) -> bool:
        """Whether it can be expected to work; looks at the socket if it was idle."""
        if self._is_outdated():
            return False
        if monotonic() - self._used_at < _IDLE:
            return True
        try:
            plain = getattr(self._socket, "_sock", self._socket)  # inside a socket of gevent's
            plain.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False  # it was closed, or there is a reply that no call waits for

    def exchange(self, packed: bytes, count: int = 1, is_alone: bool = False) -> list[Any]:
        """Send commands in one write and return their replies, the server's errors among them.

        `is_alone` says that no other thread makes calls now. `OSError` when the connection ended or the
        server did not answer in time.
        """
        try:
            self._send(packed, is_alone)
        except BlockingIOError:
            raise TimeoutError(_STALLED) from None
        replies: list[Any] = []
        gets = self._gets
        while True:
            try:
                data = self._receive(is_alone)
            except (TimeoutError, BlockingIOError):
                if self._is_busy():
                    continue
                raise TimeoutError(_STALLED) from None
            if not data:
                raise ConnectionResetError("the server closed the connection")
            try:
                self._feed(data)
                while (reply := gets()) is not _INCOMPLETE:
                    replies.append(reply)
            except PROTOCOL_ERRORS as problem:
                raise ConnectionAbortedError(f"it does not speak the Redis protocol ({problem})") from None
            if len(replies) >= count:
                self._used_at = monotonic()
                return replies

    def failure(self, packed: bytes, problem: BaseException) -> OutcomeUnknown | Unavailable:
        """The error for a command whose exchange failed: a write may have been executed."""
        kind = Unavailable if is_read(packed) else OutcomeUnknown
        return kind(self._address, str(problem))

    def error(self, packed: bytes, reply: ServerError) -> ServerError | Unavailable:
        """The error for a command that the server refused."""
        args = unpack_command(packed)
        return reply_error(self._address, reply, command_name(args), args)

    def close(self) -> None:
        """Close the socket in this process."""
        self._socket.close()

    def __del__(self) -> None:
        self._socket.close()

    def shut_down(self) -> None:
        """End the connection under the thread that waits for its reply."""
        self._socket.shutdown(socket.SHUT_RDWR)


def limit_blocking(connected: socket.socket, seconds: float) -> None:
    """Limit how long the socket blocks, by the kernel: `settimeout` would poll before each send and receive.

    Those two system calls are an eighth of an exchange. A socket that gevent has replaced waits by its loop.
    """
    if _is_gevents(connected):
        connected.settimeout(seconds)
        return
    connected.setblocking(True)
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _is_gevents(connected: socket.socket) -> bool:
    return "gevent" in type(connected).__module__


def is_read(packed: bytes) -> bool:
    """Whether a packed command changes nothing."""
    return command_name(unpack_command(packed)) in READS
