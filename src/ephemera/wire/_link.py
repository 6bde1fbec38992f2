"""A link keeps one connection to one server alive, and says at once when there is none.

- Up: `call` packs the command onto the connection and returns the future of its reply. This is the hot path.
- Down: `call` raises `Unavailable` in microseconds. Nothing is queued for later. A background task connects
  again, at once at first, then with jittered backoff of at most half a second.
- Lost in mid-flight: what had not left fails as `Unavailable`. Of what had left, reads are sent once more
  if the next connection comes up at its first attempt, and fail as `Unavailable` otherwise; everything else
  fails as `OutcomeUnknown`, because only the caller can know whether it may be repeated.
- LOADING (a server that is reading its data back) counts as down.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import hiredis

from ephemera.errors import (
    CannotConnect,
    OutcomeUnknown,
    ServerError,
    StoreClosed,
    Unavailable,
    WrongServer,
)
from ephemera.wire._commands import PLAIN, READS, Arg, as_text, command_name, first_key, unpackable
from ephemera.wire._connection import LARGE, Connection, Entry, ReplyHandler, unpack_command
from ephemera.wire._handshake import Endpoint, open_connection
from ephemera.wire._latency import Latencies
from ephemera.wire._packed_commands import ScriptPrefix
from ephemera.wire._scripts import Script, source_of

log = logging.getLogger("ephemera.wire")

_FIRST_BACKOFF = 0.01
_LONGEST_BACKOFF = 0.5
_PING_EVERY = 1.0
# A script is the work of many commands: written by the hundred, the server and we would take turns to idle.
_SCRIPTS_TOGETHER = 16
_MANY_ARGUMENTS = 20
_pack: Callable[[tuple[Arg, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
# So many connections in a row may end within a second before the next is not made at once any more.
_MOST_BRIEF = 3


class Link:
    """One multiplexed connection to one server, kept alive until `aclose`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        redirect: Callable[[Entry, ServerError], bool] | None = None,
        unusual: Callable[[tuple[Arg, ...]], Any] | None = None,
        listener: Callable[[list[Any]], None] | None = None,
        on_state: Callable[[bool], None] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.connects = 0
        self.latencies = Latencies()
        self.closed = False
        self.retired = False
        """Whether it is closed because its server went, and not the store."""
        self.setup: list[tuple[Arg, ...]] = []
        self._redirect = redirect
        self._unusual = unusual or self._send_named
        self._listener = listener
        self._on_state = on_state
        self._connection: Connection | None = None
        self._retries: list[Entry] = []
        self._problem = "not connected yet"
        self._keeper: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future

    @property
    def up(self) -> bool:
        """Whether calls are taken now."""
        return self._connection is not None

    @property
    def in_flight(self) -> int:
        """Commands that were sent, or are about to be, and are not answered yet."""
        return 0 if self._connection is None else len(self._connection.waiting)

    def call(self, *args: Arg) -> asyncio.Future[Any]:
        """Send a command and return the future of its reply."""
        connection = self._connection
        if connection is None:
            raise self._unavailable()
        if args and args[0] in PLAIN:
            reply = self._create_future()
            if connection.crowded:
                connection.put_in_turn(reply, args)
                return reply
            # From here on it is `connection.put`, written out: another call would cost 5 %.
            try:
                packed = _pack(args)
            except TypeError as problem:
                raise unpackable(args, problem) from None
            connection.waiting.append(reply)
            out = connection.out
            out.append(packed)
            if not connection.flushing:
                connection.flushing = True
                self._loop.call_soon(connection.flush)
            if len(out) >= connection.room or len(packed) >= LARGE:
                connection.write()
            return reply
        return self._unusual(args)

    def send(self, *args: Arg) -> asyncio.Future[Any]:
        """Send a command of any name as it is; for those that know what shares the connection."""
        if self._connection is None:
            raise self._unavailable()
        reply = self._create_future()
        self.submit(reply, args)
        return reply

    def run(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> asyncio.Future[Any]:
        """Run a script on its keys; a few at a time, so that the server works while the next are packed."""
        connection = self._connection
        if connection is None:
            raise self._unavailable()
        reply = self._create_future()
        words = ("EVALSHA", script.sha, len(keys), *keys, *args)
        if connection.crowded:
            connection.put_in_turn(reply, words)
            return reply
        connection.put(reply, words)
        if len(connection.out) >= _SCRIPTS_TOGETHER:
            connection.write()
        return reply

    def run_for(self, reply: ReplyHandler, beginning: ScriptPrefix, arguments: Sequence[bytes]) -> None:
        """Run a script whose outcome, also "down", settles the given reply."""
        connection = self._connection
        if connection is None:
            reply.set_exception(self._unavailable())
            return
        packed = beginning.followed_by(arguments)
        if connection.crowded:
            connection.put_in_turn(reply, unpack_command(packed))
            return
        connection.put_packed(reply, packed)
        if connection.out and (len(arguments) >= _MANY_ARGUMENTS or len(connection.out) >= _SCRIPTS_TOGETHER):
            connection.write()

    def send_packed(self, packed: bytes) -> asyncio.Future[Any]:
        """Send what its caller has packed: a `PreparedScript`, or a read (`packed_read_parts`)."""
        connection = self._connection
        if connection is None:
            raise self._unavailable()
        reply = self._create_future()
        if connection.crowded:
            connection.put_in_turn(reply, unpack_command(packed))
            return reply
        connection.waiting.append(reply)
        out = connection.out
        out.append(packed)
        if not connection.flushing:
            connection.flushing = True
            self._loop.call_soon(connection.flush)
        if len(out) >= connection.room or len(packed) >= LARGE:
            connection.write()
        return reply

    def submit(self, reply: ReplyHandler, args: tuple[Arg, ...]) -> None:
        """Send a plain command whose outcome, also "down", settles the given reply."""
        connection = self._connection
        if connection is None:
            reply.set_exception(self._unavailable())
        elif connection.crowded:
            connection.put_in_turn(reply, args)
        else:
            connection.put(reply, args)

    def resend(self, entry: Entry, args: tuple[Arg, ...] | None = None, *, asking: bool = False) -> None:
        """Send an entry once more for the same waiting caller, failing it here when down."""
        connection = self._connection
        if entry.reply.done():
            return
        if connection is None:
            entry.reply.set_exception(self._unavailable())
            return
        if asking:
            _forget(connection.send("ASKING"))
        connection.put(entry.reply, args or entry.args, entry.attempts + 1)

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
                await self._finish(connection)
        finally:
            if connection is not None:
                connection.abort("the store was closed")
        if connection is not None:
            await connection.lost

    async def _finish(self, connection: Connection) -> None:
        """Let a connection answer what it was asked and say goodbye; a frozen server does neither."""
        patience = self.endpoint.target.timeout
        if connection.waiting:
            # Replies come in order: when this one is here, all are, also of those that wait for room.
            last = self._create_future()
            _forget(last)
            put = connection.put_in_turn if connection.crowded else connection.put
            put(last, ("PING",))
            await asyncio.wait((last,), timeout=patience)
        connection.close()
        await asyncio.wait((connection.lost,), timeout=patience)

    def drop(self, problem: str) -> None:
        """End the present connection, so that the next one finds the server's present place."""
        if self._connection is not None:
            self._connection.abort(problem)

    # What the connection reports (see `connection.Owner`).

    def on_error(self, entry: Entry, error: ServerError) -> None:
        """Recover from NOSCRIPT, follow redirections, and fail the rest with a named error."""
        name = command_name(entry.args)
        if error.code == "NOSCRIPT" and name == "EVALSHA":
            source = source_of(as_text(entry.args[1]))
            if source is not None and entry.attempts < 3:
                return self.resend(entry, ("EVAL", source, *entry.args[2:]))
        if self._redirect is not None and self._redirect(entry, error):
            return None
        if entry.reply.done():
            return None
        if error.code == "LOADING":
            entry.reply.set_exception(Unavailable(str(self.endpoint), "it is loading its data"))
            return None
        entry.reply.set_exception(named_error(error, name, entry.args))
        return None

    def on_push(self, push: list[Any]) -> None:
        """Hand a push to the listener; its mistakes are reported, and cost nobody a reply."""
        if self._listener is None:
            return
        try:
            self._listener(push)
        except Exception as error:
            self._loop.call_exception_handler({"message": "a listener of pushes failed", "exception": error})

    def on_lost(self, problem: str, sent: list[Entry], unsent: list[Entry]) -> None:
        """Fail what cannot be repeated and keep the reads for the next connection."""
        was_up, self._connection = self._connection is not None, None
        self._problem = problem
        stalled = problem.startswith("no answer")
        for entry in sent:
            if entry.reply.done():
                continue
            if command_name(entry.args) not in READS:
                entry.reply.set_exception(OutcomeUnknown(str(self.endpoint), problem))
            elif stalled or self.closed or entry.attempts > 0:
                entry.reply.set_exception(Unavailable(str(self.endpoint), problem))
            else:
                self._retries.append(entry)
        self._fail(unsent)
        if was_up and not self.closed:
            log.warning("%s: %s; reconnecting", self.endpoint, problem)
            self._tell(up=False)

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
        """Wait for the end of a connection, asking after it every second: a dead peer sends no farewell.

        False when it ended within its first second.
        """
        lasted = False
        while not connection.lost.done():
            await asyncio.wait((connection.lost,), timeout=_PING_EVERY)
            if not connection.lost.done():
                lasted = True
                if not connection.waiting:
                    _forget(connection.send("PING"))
        return lasted

    def _come_up(self, connection: Connection) -> None:
        if connection.lost.done():
            self._give_up_retries()
            return
        if self.connects:
            log.info("%s: connected again", self.endpoint)
        self.connects += 1
        connection.latencies = self.latencies
        self._connection = connection
        retries, self._retries = self._retries, []
        for entry in retries:
            self.resend(entry)
        self._tell(up=True)

    async def _open(self) -> Connection:
        return await open_connection(self.endpoint, self, self.setup)

    def _give_up_retries(self) -> None:
        retries, self._retries = self._retries, []
        self._fail(retries)

    def _fail(self, entries: list[Entry]) -> None:
        for entry in entries:
            if not entry.reply.done():
                entry.reply.set_exception(self._unavailable())

    def _tell(self, *, up: bool) -> None:
        if self._on_state is not None:
            self._on_state(up)

    def _send_named(self, args: tuple[Arg, ...]) -> asyncio.Future[Any]:
        return self.send(*args)

    def _unavailable(self) -> Unavailable | StoreClosed:
        if self.closed and not self.retired:
            return StoreClosed(f"{self.endpoint}: the store is closed; open a new one")
        return Unavailable(str(self.endpoint), self._problem)


def named_error(error: ServerError, name: str, args: tuple[Arg, ...]) -> ServerError:
    """The server's error with the command and key it answers; the server's echo of arguments is cut."""
    message = error.message.partition(", with args beginning with")[0]
    key = first_key(name, args)
    return type(error)(message, name, None if key is None else as_text(key))


def _forget(future: asyncio.Future[Any]) -> None:
    """Let a reply go by: its failure shows on the connection, not here."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
