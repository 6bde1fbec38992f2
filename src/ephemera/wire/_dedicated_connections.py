"""Connections of their own for blocking commands, so that a command that waits blocks no other.

A blocking command takes an idle connection or opens one, and returns it after the reply. A caller that is
cancelled while it waits ends its connection: an element that the server would pop after that stays on the
server, except in the instant when it is already on its way, as with every client of BLPOP. Use streams with
consumer groups where that matters.

At most `max_blocking` of them wait at the same time; a further one waits for a free connection as long as it
might wait to connect.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from ephemera.errors import OutcomeUnknown, ServerError, StoreClosed, Unavailable
from ephemera.wire._commands import READS, Arg, command_name
from ephemera.wire._connection import Connection, Entry, ReplyHandler, refuse_other_loop
from ephemera.wire._handshake import Endpoint, open_connection, renew_login
from ephemera.wire._link import named_error

_MOST_IDLE = 8
# A master that became a replica answers writes, and blocked commands, with these.
_DEMOTED = ("READONLY", "UNBLOCKED")
# Seconds without progress that a blocking command's connection may have: its own time limit applies instead.
_NO_STALL = 365 * 86400.0


class DedicatedConnections:
    """Blocking commands to one server, each on a connection of its own."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = replace(endpoint, target=replace(endpoint.target, timeout=_NO_STALL))
        self._grace = endpoint.target.timeout
        self._free = asyncio.Semaphore(endpoint.target.max_blocking)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._closed = False
        self._loop = asyncio.get_running_loop()

    async def call(self, args: tuple[Arg, ...], seconds: float, *, asking: bool = False) -> Any:
        """Run a blocking command that waits at most `seconds` (0: forever)."""
        refuse_other_loop(self._loop)
        await self._take_turn()
        try:
            return await self._call(args, seconds, asking=asking)
        finally:
            self._free.release()

    async def _take_turn(self) -> None:
        target = self._endpoint.target
        try:
            async with asyncio.timeout(target.connect_timeout):
                await self._free.acquire()
        except TimeoutError:
            raise Unavailable(
                str(self._endpoint),
                f"{target.max_blocking} blocking commands are waiting already; wait in fewer tasks, or raise "
                "max_blocking in the URL",
            ) from None

    async def _call(self, args: tuple[Arg, ...], seconds: float, *, asking: bool) -> Any:
        connection = await self._acquire()
        try:
            async with asyncio.timeout(seconds + self._grace if seconds else None):
                if asking:
                    await connection.send_internal("ASKING")
                reply = await connection.send_args(args, asyncio.get_running_loop().create_future())
        except ServerError as error:
            if self._endpoint.must_be_master and error.code in _DEMOTED:
                self._end(connection, "it is a replica now")
                raise Unavailable(str(self._endpoint), "it is a replica now") from None
            self._release(connection)
            raise
        except BaseException as error:
            self._end(connection, "its caller was cancelled")
            if isinstance(error, TimeoutError):
                raise self._unanswered(args) from None
            raise
        self._release(connection)
        return reply

    def drop(self, problem: str) -> list[Connection]:
        """End all of them, including those with a command that waits."""
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

    async def _acquire(self) -> Connection:
        self._check_open()
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost.done():
                self._busy.add(connection)
                await renew_login(connection, self._endpoint)
                return connection
        connection = await open_connection(self._endpoint, NonRecoveringOwner(self._endpoint))
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

    def _release(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if self._closed or len(self._idle) >= _MOST_IDLE:
            connection.close()
        elif not connection.lost.done():
            self._idle.append(connection)

    def _unanswered(self, args: tuple[Arg, ...]) -> Unavailable | OutcomeUnknown:
        kind = Unavailable if command_name(args) in READS else OutcomeUnknown
        return kind(str(self._endpoint), "a blocking command was not answered within its time limit")


class NonRecoveringOwner:
    """The owner of a connection for one command at a time: passes every failure on to its caller."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def on_error(self, entry: Entry, error: ServerError) -> None:
        """Fail the command with the server's error."""
        args = entry.args
        if not entry.reply.done():
            entry.reply.set_exception(named_error(error, command_name(args), args))

    def expects_silence(self) -> bool:
        """Silence is limited by the command's own time limit, not by this one."""
        return False

    def on_push(self, push: list[Any]) -> None:
        """Ignore it: nothing is pushed to a connection without subscriptions."""

    def on_lost(self, problem: str, sent: list[Entry], unsent: list[ReplyHandler]) -> None:
        """Fail the command, by whether it had been sent."""
        for entry in sent:
            if not entry.reply.done():
                kind = Unavailable if command_name(entry.args) in READS else OutcomeUnknown
                entry.reply.set_exception(kind(str(self._endpoint), problem))
        for reply in unsent:
            if not reply.done():
                reply.set_exception(Unavailable(str(self._endpoint), problem))
