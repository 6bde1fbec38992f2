"""A link keeps one connection to one server alive, and fails calls at once while there is none.

- Up: a command is handed to the connection, and the caller gets the future of its reply. This is the hot
  path.
- Down: `Unavailable`, in microseconds. Nothing is queued for later. A background task reconnects, at once at
  first, then with jittered backoff of at most half a second.
- Lost with commands in flight: those that had not been sent fail as `Unavailable`. Of the others, reads are
  sent again if the next connection comes up at its first attempt, and fail as `Unavailable` otherwise;
  all else fails as `OutcomeUnknown`, because only the caller can know whether it may be repeated.
- LOADING (the server is reading its data back from disk) counts as down.
- A command from another thread, from another loop of the same thread or from a forked child is refused with
  `LoopMisuse` before any of it is queued.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ephemera._futures import discard
from ephemera.errors import (
    CannotConnect,
    LoopMisuse,
    OutcomeUnknown,
    ServerError,
    StoreClosed,
    Unavailable,
    WrongServer,
)
from ephemera.wire._commands import PLAIN, READS, Arg, as_text, command_name, first_key
from ephemera.wire._connection import (
    Connection,
    Entry,
    Latencies,
    RepeatedCommand,
    ReplyHandler,
    loop_misuse,
)
from ephemera.wire._handshake import Endpoint, open_connection, renew_login
from ephemera.wire._packed_commands import pack, packing_error
from ephemera.wire._scripts import Script, source_of

_FIRST_BACKOFF = 0.01  # seconds
_LONGEST_BACKOFF = 0.5
_PING_INTERVAL = 1.0
# After this many connections in a row that ended within a second, reconnecting backs off.
_MOST_BRIEF = 3

_COLLECTED = 512
"""Bytes from which a command of `send_to` is written at once."""


class Link:
    """One multiplexed connection to one server, kept alive until `aclose`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        redirect: Callable[[Entry, ServerError], bool] | None = None,
        call_special: Callable[[tuple[Arg, ...], float | None], Any] | None = None,
        on_push: Callable[[list[Any]], None] | None = None,
        on_state: Callable[[bool], None] | None = None,
        on_unreachable: Callable[[str], None] | None = None,
        expects_silence: Callable[[], bool] = bool,
    ) -> None:
        self.endpoint = endpoint
        self.connection_count = 0
        self.replaces = False
        """Whether the server came to the cluster later, so that its first connection is a reconnection."""
        self.latencies = Latencies()
        self.closed = False
        self.retired = False
        """Whether it was closed because its server left the cluster, and not with the store."""
        self.setup: list[tuple[Arg, ...]] = []
        """Commands that every connection starts with."""
        self._redirect = redirect
        self._call_special = call_special or (lambda args, _: self.send_args(args))
        self.expects_silence = expects_silence
        self._push_listener = on_push
        self._state_listener = on_state
        self._on_unreachable = on_unreachable
        self._connection: Connection | None = None
        # The same for the thread of the loop alone: others find no attribute `connection` in it. In place of
        # a check for None this costs 1.5 % of a GET; comparing thread ids costs 4 %.
        self._own = threading.local()
        self._retries: list[Entry] = []
        self._problem = "not connected yet"
        self._keeper: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future
        _links.add(self)

    @property
    def up(self) -> bool:
        """Whether it is connected."""
        return self._connection is not None

    def is_past(self, connection_count: int) -> bool:
        """Whether the connection with this number (`connection_count`) has been lost."""
        return self._connection is None or self.connection_count != connection_count

    @property
    def in_flight(self) -> int:
        """Commands that are not answered yet, those of the next write included."""
        return 0 if self._connection is None else len(self._connection.waiting)

    def call(self, *args: Arg, timeout: float | None = None) -> asyncio.Future[Any]:
        """Send a command and return the future of its reply."""
        try:
            connection: Connection = self._own.connection
        except AttributeError:
            raise self._refusal() from None
        if timeout is None and args and args[0] in PLAIN:
            # Packed here rather than in `send_args`: one call less is 6 % of a GET among 500 tasks.
            if connection.at_limit:
                return connection.send_args(args, self._create_future())
            try:
                packed = pack(args)
            except TypeError as problem:
                raise packing_error(args, problem) from None
            return connection.send(packed, self._create_future())
        return self._call_special(args, timeout)

    def run(
        self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = (), *, timeout: float | None = None
    ) -> asyncio.Future[Any]:
        """Run a script on its keys."""
        words = ("EVALSHA", script.sha, len(keys), *keys, *args)
        if timeout is None and script.is_fast:
            return self.send_args(words)
        return self._call_special(words, timeout)

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        """Send a packed command as it is, without checking whether it may share the connection."""
        try:
            connection: Connection = self._own.connection
        except AttributeError:
            raise self._refusal() from None
        return connection.send(packed, self._create_future())

    def send_args(self, args: tuple[Arg, ...]) -> asyncio.Future[Any]:
        """As `send`, from a command's arguments."""
        try:
            connection: Connection = self._own.connection
        except AttributeError:
            raise self._refusal() from None
        return connection.send_args(args, self._create_future())

    def send_args_to(self, reply: ReplyHandler, args: tuple[Arg, ...]) -> None:
        """As `send_args`, but the outcome goes to `reply`."""
        if self._connection is None:
            raise self._unavailable()
        self._connection.send_args(args, reply)

    def send_to(self, reply: ReplyHandler, packed: bytes) -> None:
        """As `send`, but the outcome goes to `reply`, even that the server is down."""
        try:
            connection: Connection = self._own.connection
        except AttributeError:
            reply.set_exception(self._refusal())
            return
        connection.send(packed, reply)
        # The work of many callers in one command is not held until the end of the tick: the server does it
        # while more is collected. It wins 80 % of the row "50 tasks, count, no disk" on two free cores.
        if len(packed) >= _COLLECTED and connection.out:
            connection.write()

    def resend(self, entry: Entry, packed: bytes | None = None, *, asking: bool = False) -> None:
        """Send a command again for the caller that still waits for it, or fail it here when down."""
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
            self.endpoint.outages.lose(self, "starting without %s", error)
        else:
            self._come_up(connection)
        self._keeper = self._loop.create_task(self._keep(connection), name="ephemera-link")

    def start_later(self) -> None:
        """Connect in the background, and stay connected."""
        self._keeper = self._loop.create_task(self._keep(None), name="ephemera-link")

    async def aclose(self) -> None:
        """Wait for what is in flight, at most one timeout, and disconnect."""
        self.closed = True
        self.endpoint.outages.forget(self)
        connection = self._take_connection()
        try:
            for task in (self._keeper, self._renewal):
                if task is not None:
                    task.cancel()
                    await asyncio.wait((task,))
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
            # Replies come in order: when this one is here, all are, even of commands that wait for their
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
        entry.reply.set_exception(reply_error(str(self.endpoint), error, name, args))
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
        connection = self._take_connection()
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
            self.endpoint.outages.lose(self, "%s: %s; reconnecting", self.endpoint, problem)
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
                if self._on_unreachable is not None:
                    self._on_unreachable(error.problem)
            else:
                self._come_up(connection)

    async def _watch(self, connection: Connection) -> bool:
        """Wait for the end of a connection, with a PING every idle second: a dead peer closes nothing.

        False when it ended within its first second.
        """
        lasted, began = False, self._loop.time()
        while not connection.lost.done():
            await asyncio.wait((connection.lost,), timeout=self._pause())
            if not connection.lost.done():
                self._renew_login(connection)
                if not lasted and self._loop.time() - began >= _PING_INTERVAL:
                    lasted = True
                    self.endpoint.outages.regain(self, "%s: connected again", self.endpoint)
                if not connection.waiting:
                    discard(connection.send_internal("PING"))
        return lasted

    def _pause(self) -> float:
        """Seconds until the connection is looked at again."""
        source = self.endpoint.source
        return (
            _PING_INTERVAL if source is None else min(_PING_INTERVAL, max(0.01, source.seconds_until_renewal))
        )

    def _renew_login(self, connection: Connection) -> None:
        source = self.endpoint.source
        if source is not None and (self._renewal is None or self._renewal.done()):
            self._renewal = self._loop.create_task(renew_login(connection, self.endpoint))
            discard(self._renewal)

    def _come_up(self, connection: Connection) -> None:
        if connection.lost.done():
            self._give_up_retries()
            return
        self.connection_count += 1
        connection.latencies = self.latencies
        connection.is_one_of_many = self._redirect is not None  # only nodes of a cluster redirect
        self._connection = self._own.connection = connection
        retries, self._retries = self._retries, []
        for entry in retries:
            self.resend(entry)
        self._notify(up=True)

    def _take_connection(self) -> Connection | None:
        connection, self._connection = self._connection, None
        self._own = threading.local()
        return connection

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

    def _refusal(self) -> Unavailable | StoreClosed | LoopMisuse:
        """Why there is no connection for this thread."""
        return self._unavailable() if self._connection is None else loop_misuse()

    def _unavailable(self) -> Unavailable | StoreClosed:
        if self.closed and not self.retired:
            return StoreClosed(f"{self.endpoint}: the store is closed; open a new one")
        return Unavailable(str(self.endpoint), self._problem)


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _after_fork() -> None:
    """Refuse the calls of a forked child: the connections are its parent's."""
    for link in list(_links):
        link._own = threading.local()


os.register_at_fork(after_in_child=_after_fork)


def reply_error(
    address: str, error: ServerError, name: str, args: tuple[Arg, ...]
) -> ServerError | Unavailable:
    """What a caller gets for an error reply; a server that loads its data counts as down."""
    if error.code == "LOADING":
        return Unavailable(address, "it is loading its data")
    return named_error(error, name, args)


def named_error(error: ServerError, name: str, args: tuple[Arg, ...]) -> ServerError:
    """The server's error with its command and key; the arguments that the server echoes are cut off."""
    message = error.message.partition(", with args beginning with")[0]
    key = first_key(name, args)
    return type(error)(message, name, None if key is None else as_text(key))
