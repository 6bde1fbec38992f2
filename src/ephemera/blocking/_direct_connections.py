"""Connections that the calling threads drive themselves, without the loop's thread.

Handing a command to another thread and its reply back costs more than the round trip to a server nearby. So a
thread takes a connection of its own from here, writes its command, blocks for the reply and returns the
connection. One that fails, or whose thread is interrupted by a signal handler, is closed, so its late reply
can reach no other call.

There are at most 16. A call that finds none free uses the loop's connection, which any number of threads
share. So does every call while the server is down, which then fails at once, and all calls to a cluster, to
Sentinels, over TLS, with credentials that change, and under a deadline.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ephemera.errors import CannotConnect, ServerError, StoreClosed
from ephemera.wire import (
    BlockingConnection,
    Client,
    DetachedSocket,
    NodeClient,
    is_read,
)

if TYPE_CHECKING:
    from ephemera.blocking._loop_thread import LoopThread

_MOST = 16
SHARED = object()
"""Stands for replies that the loop's connection has to give."""


class DirectConnections:
    """The direct connections of one process to one server."""

    def __init__(self, thread: LoopThread, client: Client) -> None:
        self._thread = thread
        self._client = client if isinstance(client, NodeClient) and client.can_block else None
        self._idle: list[BlockingConnection] = []
        self._all: weakref.WeakSet[BlockingConnection] = weakref.WeakSet()
        self._opening = 0
        self._caller = 0  # the thread of the last exchange
        self._closed = False

    def exchange(self, packed: bytes) -> Any:
        """The reply to a command, or `SHARED`."""
        try:
            connection: BlockingConnection | None = self._idle.pop()
        except IndexError:
            connection = None
        if connection is None or not connection.is_usable():
            connection = self._take(connection)
            if connection is None:
                return SHARED
        before, self._caller = self._caller, get_ident()
        try:
            reply = connection.exchange(packed, 1, before == self._caller)[0]
        except BaseException as problem:
            self._drop(connection)
            return self._failed(connection, [packed], problem)
        self._idle.append(connection)
        if reply.__class__ is ServerError:
            if reply.code == "NOSCRIPT":
                return SHARED  # which sends the script's source
            raise connection.error(packed, reply)
        return reply

    def exchange_all(self, batch: list[bytes]) -> Any:
        """The replies to several commands, sent in one write, errors among them; or `SHARED`."""
        connection = self._take()
        if connection is None:
            return SHARED
        try:
            replies = connection.exchange(b"".join(batch), len(batch))
        except BaseException as problem:
            self._drop(connection)
            return self._failed(connection, batch, problem)
        self._idle.append(connection)
        for position, reply in enumerate(replies):
            if reply.__class__ is ServerError:
                replies[position] = connection.error(batch[position], reply)
        return replies

    def close(self) -> None:
        """End all of them; calls that wait raise `StoreClosed`."""
        self._closed = True
        for connection in list(self._all):
            with suppress(OSError):  # it has ended by itself
                connection.shut_down()

    def close_in_child(self) -> None:
        """Close the sockets in a forked child; they are its parent's."""
        for connection in list(self._all):
            connection.close()

    def _take(self, unusable: BlockingConnection | None = None) -> BlockingConnection | None:
        if unusable is not None:
            self._drop(unusable)
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.is_usable():
                return connection
            self._drop(connection)
        if self._client is None or self._closed or len(self._all) + self._opening >= _MOST:
            return None
        return self._open(self._client)

    def _open(self, client: NodeClient) -> BlockingConnection | None:
        if not client.up:
            return None
        self._opening += 1
        try:
            detached: DetachedSocket = self._thread.wait_for(client.open_blocking())
            connection = detached.connect()
        except CannotConnect:
            return None
        finally:
            self._opening -= 1
        self._all.add(connection)
        return connection

    def _drop(self, connection: BlockingConnection) -> None:
        self._all.discard(connection)
        connection.close()

    def _failed(self, connection: BlockingConnection, batch: list[bytes], problem: BaseException) -> Any:
        """Have reads repeated on the loop's connection; whether a write was executed is unknown."""
        if not isinstance(problem, OSError):
            raise problem
        if self._closed:
            raise closed_error()
        if not isinstance(problem, TimeoutError) and all(map(is_read, batch)):
            return SHARED
        raise connection.failure(next((each for each in batch if not is_read(each)), batch[0]), problem)


def closed_error() -> StoreClosed:
    """The error of calls to a store that was closed."""
    return StoreClosed("this store is closed; connect again")
