"""A link keeps one connection to one server alive, and fails calls at once while there is none.

- Up: a command is handed to the connection, and the caller gets the future of its reply. This is the hot
  path.
- Down: `Unavailable`, in microseconds. Nothing is queued for later. A background task reconnects, at once at
  first, then with jittered backoff of at most half a second.
- Lost with commands in flight: those that had not been sent fail as `Unavailable`. Of the others, reads are
  sent once more if the next connection comes up at its first attempt, and fail as `Unavailable` otherwise;
  all else fails as `OutcomeUnknown`, because only the caller can know whether it may be repeated.
- LOADING (the server is reading its data back from disk) counts as down.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

from ephemera._futures import discard
from ephemera.errors import (
    CannotConnect,
    OutcomeUnknown,
    ServerError,
    StoreClosed,
    Unavailable,
    WrongServer,
)
from ephemera.wire._commands import PLAIN, READS, Arg, as_text, command_name, first_key
from ephemera.wire._connection import Connection, Entry, Latencies, RepeatedCommand, ReplyHandler
from ephemera.wire._handshake import Endpoint, open_connection
from ephemera.wire._packed_commands import pack
from ephemera.wire._scripts import Script, source_of

log = logging.getLogger("ephemera.wire")

_FIRST_BACKOFF = 0.01  # seconds
_LONGEST_BACKOFF = 0.5
_PING_INTERVAL = 1.0
# After this many connections in a row that ended within a second, reconnecting backs off.
_MOST_BRIEF = 3


class Link:
    """One multiplexed connection to one server, kept alive until `aclose`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        redirect: Callable[[Entry, ServerError], bool] | None = None,
        call_special: Callable[[tuple[Arg, ...]], Any] | None = None,
        on_push: Callable[[list[Any]], None] | None = None,
        on_state: Callable[[bool], None] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.connects = 0
        self.latencies = Latencies()
        self.closed = False
        self.retired = False
        """Whether it was closed because its server left the cluster, and not with the store."""
        self.setup: list[tuple[Arg, ...]] = []
        """Commands that every connection starts with."""
        self._redirect = redirect
        self._call_special = call_special or self.send_args
        self._push_listener = on_push
        self._state_listener = on_state
        self._connection: Connection | None = None
        self._retries: list[Entry] = []
        self._problem = "not connected yet"
        self._keeper: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future

    @property
    def up(self) -> bool:
        """Whether it is connected."""
        return self._connection is not None

    @property
    def in_flight(self) -> int:
        """Commands that are not answered yet, those of the next write included."""
        return 0 if self._connection is None else len(self._connection.waiting)

    def call(self, *args: Arg) -> asyncio.Future[Any]:
        """Send a command and return the future of its reply."""
        connection = self._connection
        if connection is None:
            raise self._unavailable()
        if args and args[0] in PLAIN:
            return connection.send_args(args, self._create_future())
        return self._call_special(args)

    def run(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> asyncio.Future[Any]:
        """Run a script on its keys."""
        return self.send_args(("EVALSHA", script.sha, len(keys), *keys, *args))

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        """Send a packed command as it is, without checking whether it may share the connection."""
        connection = self._connection
        if connection is None:
            raise self._unavailable()
        return connection.send(packed, self._create_future())

    def send_args(self, args: tuple[Arg, ...]) -> asyncio.Future[Any]:
        """As `send`, from a command's arguments."""
        connection = self._connection
        if connection is None:
            raise self._unavailable()
        return connection.send_args(args, self._create_future())

    def send_to(self, reply: ReplyHandler, packed: bytes) -> None:
        """As `send`, but the outcome goes to `reply`, also that the server is down."""
        if self._connection is None:
            reply.set_exception(self._unavailable())
        else:
            self._connection.send(packed, reply)

    def resend(self, entry: Entry, packed: bytes | None = None, *, asking: bool = False) -> None:
        """Send a command once more for the caller that still waits for it, or fail it here when down."""
        connection = self._connection
        if entry.reply.done():
            return
        if connection is None:
            entry.reply.set_exception(self._unavailable())
            return
        if asking:
            discard(connection.send_internal("ASKING"))
        connection.send(RepeatedCommand.of(packed or entry.packed, entry.attempts + 1), entry.reply)

    async def start(self, *, required: bool = True) -> None:
        """Connect, then stay connected; when `required`, a first failure is raised."""
        connection: Connection | None = None
        try:
            connection = await self._open()
        except CannotConnect as error:
            self._problem = error.problem
            if required or isinstance(error, WrongServer):
                raise
            log.warning("starting without %s", error)
        else:
            self._come_up(connection)
        self._keeper = self._loop.create_task(self._keep(connection), name="ephemera-link")

    def start_later(self) -> None:
        """Connect in the background, and stay connected."""
        self._keeper = self._loop.create_task(self._keep(None), name="ephemera-link")

    async def aclose(self) -> None:
        """Wait for what is in flight, at most one timeout, and disconnect."""
        self.closed = True
        connection, self._connection = self._connection, None
        try:
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.wait((self._keeper,))
            self._give_up_retries()
            if connection is not None:
                await self._drain(connection)
        finally:
            if connection is not None:
                connection.abort("the store was closed")
        if connection is not None:
            await connection.lost

    async def _drain(self, connection: Connection) -> None:
        """Let a connection answer what it was sent, and close it; a frozen server does neither."""
        patience = self.endpoint.target.timeout
        if connection.waiting:
            # Replies come in order: when this one is here, all are, also of commands that wait for their
            # turn.
            last = connection.send_internal("PING")
            discard(last)
            await asyncio.wait((last,), timeout=patience)
        connection.close()
        await asyncio.wait((connection.lost,), timeout=patience)

    def drop(self, problem: str) -> None:
        """End the present connection, so that the next one goes to the server's present address."""
        if self._connection is not None:
            self._connection.abort(problem)

    # What the connection reports (`ConnectionOwner`).

    def on_error(self, entry: Entry, error: ServerError) -> None:
        """Recover from NOSCRIPT, follow redirections, and fail the rest with a named error."""
        args = entry.args
        name = command_name(args)
        if error.code == "NOSCRIPT" and name == "EVALSHA" and entry.attempts < 3:
            source = source_of(as_text(args[1]))
            if source is not None:
                return self.resend(entry, pack(("EVAL", source, *args[2:])))
        if self._redirect is not None and self._redirect(entry, error):
            return None
        if entry.reply.done():
            return None
        if error.code == "LOADING":
            entry.reply.set_exception(Unavailable(str(self.endpoint), "it is loading its data"))
            return None
        entry.reply.set_exception(named_error(error, name, args))
        return None

    def on_push(self, push: list[Any]) -> None:
        """Hand a push to the listener; its exceptions are reported and affect no reply."""
        if self._push_listener is None:
            return
        try:
            self._push_listener(push)
        except Exception as error:
            self._loop.call_exception_handler({"message": "a listener of pushes failed", "exception": error})

    def on_lost(self, problem: str, sent: list[Entry], unsent: list[ReplyHandler]) -> None:
        """Fail what cannot be repeated and keep the reads for the next connection."""
        connection, self._connection = self._connection, None
        self._problem = problem
        may_retry = connection is not None and not connection.stalled and not self.closed
        for entry in sent:
            if entry.reply.done():
                continue
            if command_name(entry.args) not in READS:
                entry.reply.set_exception(OutcomeUnknown(str(self.endpoint), problem))
            elif may_retry and entry.attempts == 0:
                self._retries.append(entry)
            else:
                entry.reply.set_exception(Unavailable(str(self.endpoint), problem))
        self._fail(unsent)
        if connection is not None and not self.closed:
            log.warning("%s: %s; reconnecting", self.endpoint, problem)
            self._notify(up=False)

    # Keeping the connection.

    async def _keep(self, connection: Connection | None) -> None:
        failures, brief = 1, 0
        while True:
            if connection is not None:
                brief = 0 if await self._watch(connection) else brief + 1
                failures = max(0, brief - _MOST_BRIEF)
            if failures:
                self._give_up_retries()
                ceiling = min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 2 ** min(failures, 10))
                await asyncio.sleep(random.uniform(_FIRST_BACKOFF / 2, ceiling))
            try:
                connection = await self._open()
            except CannotConnect as error:
                failures += 1
                connection = None
                self._problem = error.problem
                self._give_up_retries()
            else:
                self._come_up(connection)

    async def _watch(self, connection: Connection) -> bool:
        """Wait for the end of a connection, with a PING every idle second: a dead peer closes nothing.

        False when it ended within its first second.
        """
        lasted = False
        while not connection.lost.done():
            await asyncio.wait((connection.lost,), timeout=_PING_INTERVAL)
            if not connection.lost.done():
                lasted = True
                if not connection.waiting:
                    discard(connection.send_internal("PING"))
        return lasted

    def _come_up(self, connection: Connection) -> None:
        if connection.lost.done():
            self._give_up_retries()
            return
        if self.connects:
            log.info("%s: reconnected", self.endpoint)
        self.connects += 1
        connection.latencies = self.latencies
        self._connection = connection
        retries, self._retries = self._retries, []
        for entry in retries:
            self.resend(entry)
        self._notify(up=True)

    async def _open(self) -> Connection:
        return await open_connection(self.endpoint, self, self.setup)

    def _give_up_retries(self) -> None:
        retries, self._retries = self._retries, []
        self._fail([entry.reply for entry in retries])

    def _fail(self, replies: list[ReplyHandler]) -> None:
        for reply in replies:
            if not reply.done():
                reply.set_exception(self._unavailable())

    def _notify(self, *, up: bool) -> None:
        if self._state_listener is not None:
            self._state_listener(up)

    def _unavailable(self) -> Unavailable | StoreClosed:
        if self.closed and not self.retired:
            return StoreClosed(f"{self.endpoint}: the store is closed; open a new one")
        return Unavailable(str(self.endpoint), self._problem)


def named_error(error: ServerError, name: str, args: tuple[Arg, ...]) -> ServerError:
    """The server's error with its command and key; the arguments that the server echoes are cut off."""
    message = error.message.partition(", with args beginning with")[0]
    key = first_key(name, args)
    return type(error)(message, name, None if key is None else as_text(key))
