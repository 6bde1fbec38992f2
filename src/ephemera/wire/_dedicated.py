"""Connections of their own for blocking commands, so that one who waits holds up nobody else.

A blocking command takes an idle connection or opens one, and gives it back after its reply. A caller that
is cancelled in mid-wait ends its connection: an element that the server hands out after that stays in the
server, except in the instant when it is already on its way, as with every client of BLPOP. Use streams with
groups where that matters.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from ephemera.errors import OutcomeUnknown, ServerError, StoreClosed, Unavailable
from ephemera.wire._commands import READS, Arg, command_name
from ephemera.wire._connection import Connection, Entry
from ephemera.wire._handshake import Endpoint, open_connection
from ephemera.wire._link import named_error

_MOST_IDLE = 8
# What a master that became a replica answers to those who write, and to those who were waiting.
_DEMOTED = ("READONLY", "UNBLOCKED")
# What a blocking call may take beyond its own limit; the sweeper of its connection is as patient as this.
_UNHURRIED = 365 * 86400.0


class DedicatedConnections:
    """Blocking commands to one server, each on a connection of its own."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = replace(endpoint, target=replace(endpoint.target, timeout=_UNHURRIED))
        self._grace = endpoint.target.timeout
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._closed = False

    async def call(self, args: tuple[Arg, ...], seconds: float, *, asking: bool = False) -> Any:
        """Run a blocking command that waits at most `seconds` (0: for ever)."""
        connection = await self._take()
        try:
            async with asyncio.timeout(seconds + self._grace if seconds else None):
                if asking:
                    await connection.send("ASKING")
                reply = await connection.send(*args)
        except ServerError as error:
            if self._endpoint.must_be_master and error.code in _DEMOTED:
                self._end(connection, "it is a replica now")
                raise Unavailable(str(self._endpoint), "it is a replica now") from None
            self._give_back(connection)
            raise
        except BaseException as error:
            self._end(connection, "its caller is gone")
            if isinstance(error, TimeoutError):
                raise self._unanswered(args) from None
            raise
        self._give_back(connection)
        return reply

    def drop(self, problem: str) -> list[Connection]:
        """End all of them, also those somebody waits on."""
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        for connection in connections:
            connection.abort(problem)
        return connections

    async def aclose(self) -> None:
        """End all of them, and take no more calls."""
        self._closed = True
        for connection in self.drop("the store was closed"):
            await connection.lost

    async def _take(self) -> Connection:
        self._check_open()
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost.done():
                self._busy.add(connection)
                return connection
        connection = await open_connection(self._endpoint, Settler(self._endpoint))
        try:
            self._check_open()
        except StoreClosed:
            connection.abort("the store was closed")
            await connection.lost
            raise
        self._busy.add(connection)
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self._endpoint}: the store is closed; open a new one")

    def _end(self, connection: Connection, problem: str) -> None:
        self._busy.discard(connection)
        connection.abort(problem)

    def _give_back(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if self._closed or len(self._idle) >= _MOST_IDLE:
            connection.close()
        elif not connection.lost.done():
            self._idle.append(connection)

    def _unanswered(self, args: tuple[Arg, ...]) -> Unavailable | OutcomeUnknown:
        kind = Unavailable if command_name(args) in READS else OutcomeUnknown
        return kind(str(self._endpoint), "a blocking command was not answered in its time")


class Settler:
    """The owner of a dedicated connection: one command at a time, nothing to keep alive."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def on_error(self, entry: Entry, error: ServerError) -> None:
        """Fail the command with the server's error."""
        if not entry.reply.done():
            entry.reply.set_exception(named_error(error, command_name(entry.args), entry.args))

    def on_push(self, push: list[Any]) -> None:
        """Nothing is pushed to a connection that subscribed to nothing."""

    def on_lost(self, problem: str, sent: list[Entry], unsent: list[Entry]) -> None:
        """Fail the command by whether it had left."""
        for entry in sent:
            if not entry.reply.done():
                kind = Unavailable if command_name(entry.args) in READS else OutcomeUnknown
                entry.reply.set_exception(kind(str(self._endpoint), problem))
        for entry in unsent:
            if not entry.reply.done():
                entry.reply.set_exception(Unavailable(str(self._endpoint), problem))
