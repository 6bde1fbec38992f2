"""Exchanges with the server on a connection of redis-py, from packing to parsing, in the calling thread.

The connection is redis-py's: it connects, authenticates, selects the database and parses, so every option and
every error is its own. Only the path of a command through it is replaced. redis-py's sockets have a
timeout, for which Python polls before each send and each receive; here the kernel limits how long they block.
And redis-py polls again whenever it takes a connection from its pool, to see whether it is still good;
here one that has just answered is trusted.
"""

from __future__ import annotations

import socket
from time import monotonic
from typing import Any

from hiredis import PushNotification
from redis._parsers.hiredis import NOT_ENOUGH_DATA, _HiredisParser
from redis.connection import (
    Connection,
    HiredisRespSerializer,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ephemera.wire import limit_blocking, pack_here, prompt_calls

_TRUSTED = 0.5  # seconds after its last reply during which a connection is not looked at before it is used
_SHORTEST = 1e-6  # seconds; none at all means no limit to the kernel
_CONNECTIONS = (Connection, UnixDomainSocketConnection, SSLConnection)
_PLAIN = socket.socket  # as it is when this is imported: gevent's, if it has patched the program before


class KernelTimeoutSocket(socket.socket):
    """A socket whose timeout the kernel enforces, for redis-py to use as any other.

    `was_used` says that something other than an exchange has sent or received since the last exchange.
    """

    was_used = True
    _seconds: float | None = None

    def settimeout(self, value: float | None) -> None:
        """Limit how long it blocks: forever with None, not at all with 0."""
        self._seconds = value
        if value == 0:
            super().setblocking(False)
        else:
            limit_blocking(self, 0.0 if value is None else max(value, _SHORTEST))

    def gettimeout(self) -> float | None:
        """The limit."""
        return self._seconds

    def sendall(self, *args: Any) -> None:
        """Send all of the data."""
        self.was_used = True
        try:
            super().sendall(*args)
        except BlockingIOError as problem:
            raise self._expired(problem) from None

    def recv(self, *args: Any) -> bytes:
        """Receive some data."""
        self.was_used = True
        try:
            return super().recv(*args)
        except BlockingIOError as problem:
            raise self._expired(problem) from None

    def recv_into(self, *args: Any) -> int:
        """Receive some data into a buffer."""
        self.was_used = True
        try:
            return super().recv_into(*args)
        except BlockingIOError as problem:
            raise self._expired(problem) from None

    def _expired(self, problem: BlockingIOError) -> OSError:
        return problem if self._seconds == 0 else TimeoutError("timed out")


class Exchange:
    """Exchanges on the current socket of a connection, to which it keeps no reference."""

    __slots__ = ("_feed", "_gets", "_is_noticing", "_receive", "_send", "_used_at", "socket")

    def __init__(self, connection: Any) -> None:
        self.socket = connection._sock
        self._is_noticing = isinstance(self.socket, KernelTimeoutSocket)  # whether others have used it
        self._send, self._receive = prompt_calls(self.socket, is_plain=self._is_noticing)
        reader = connection._parser._reader
        self._feed, self._gets = reader.feed, reader.gets
        self._used_at = 0.0

    def is_usable(self, connection: Any) -> bool:
        """Whether it can be expected to work without a look at the socket."""
        return (
            self._is_noticing
            and connection._sock is self.socket
            and not self.socket.was_used
            and monotonic() - self._used_at < _TRUSTED
        )

    def run(self, connection: Any, command: bytes, count: int = 1, is_alone: bool = False) -> list[Any]:
        """Send commands in one write and return their replies, errors among them.

        `is_alone` says that no other thread makes calls now.

        Raises redis-py's errors when the connection fails. It is disconnected then, as it is when a signal
        handler raises.
        """
        replies: list[Any] = []
        gets, is_sent = self._gets, False
        try:
            self._send(command, is_alone)
            is_sent = True
            while len(replies) < count:
                self._feed(self._receive(is_alone) or _closed())
                while (reply := gets()) is not NOT_ENOUGH_DATA:
                    if reply.__class__ is PushNotification:
                        connection._parser.handle_push_response(reply)
                    else:
                        replies.append(reply)
        except OSError as problem:
            connection.disconnect()
            raise _failure(connection, problem, is_sent) from problem
        except BaseException:
            connection.disconnect()
            raise
        self._conclude(connection, len(replies) > count)
        return replies

    def _conclude(self, connection: Any, is_ahead: bool) -> None:
        self._used_at = now = monotonic()
        if self._is_noticing:
            self.socket.was_used = False
        if connection.health_check_interval:
            connection.next_health_check = now + connection.health_check_interval
        if is_ahead:  # such a command: SUBSCRIBE to two channels. What follows would get a wrong reply.
            connection.disconnect()


def _failure(connection: Any, problem: OSError, is_sent: bool) -> Any:
    """redis-py's error."""
    if isinstance(problem, (TimeoutError, BlockingIOError)):
        return RedisTimeoutError(f"Timeout {'reading from' if is_sent else 'writing to'} socket")
    if is_sent:
        return RedisConnectionError(f"Error while reading from {connection._host_error()} : {problem.args}")
    errno, message = problem.args if len(problem.args) == 2 else ("UNKNOWN", problem)
    return RedisConnectionError(f"Error {errno} while writing to socket. {message}.")


def _closed() -> bytes:
    raise RedisConnectionError("Connection closed by server.")


def exchange_on(connection: Any) -> Exchange | None:
    """The exchange of a connection, connected if need be; None when only redis-py's own way will do."""
    exchange: Exchange | None = connection.__dict__.get("_ephemera_exchange")
    if exchange is not None and connection.health_check_interval:
        connection.check_health()  # which may reconnect
    if exchange is None or exchange.socket is not connection._sock:
        exchange = _new_exchange(connection)
        connection._ephemera_exchange = exchange
    return exchange


def _new_exchange(connection: Any) -> Exchange | None:
    if (
        type(connection) not in _CONNECTIONS
        or type(connection._parser) is not _HiredisParser
        or type(connection._command_packer) is not HiredisRespSerializer
    ):
        return None
    if connection._sock is None:
        connection.connect_check_health(check_health=False)
    connection.check_health()
    if type(connection._sock) is _PLAIN and "gevent" not in _PLAIN.__module__:
        _replace_socket(connection)
    return Exchange(connection) if isinstance(connection._sock, socket.socket) else None


def _replace_socket(connection: Any) -> None:
    timeout = connection._sock.gettimeout()
    faster = KernelTimeoutSocket(fileno=connection._sock.detach())
    faster.settimeout(timeout)
    connection._sock = connection._parser._sock = faster


def checked(connection: Any, reply: Any) -> Any:
    """A reply that is not an error."""
    if isinstance(reply, Exception):
        if isinstance(reply, RedisConnectionError):
            connection.disconnect()
        raise reply
    if reply.__class__ is list and reply and isinstance(reply[0], RedisConnectionError):
        connection.disconnect()
        raise reply[0]
    return reply


def packed(connection: Any, args: tuple[Any, ...]) -> bytes:
    """A command as it goes over the wire."""
    try:
        if args[0].__class__ is str and " " not in args[0]:
            return pack_here(args)
    except TypeError:  # redis-py converts more types, or raises `DataError`
        pass
    return b"".join(connection.pack_command(*args))
