"""One socket: commands go out in batches, replies come back in order.

Every command goes through `Connection.send`. Its bytes are appended to `out`, its reply handler to `waiting`.
Commands issued in one loop tick leave in one write, or in a few when there are many, so that the server works
on the first ones while the others are still being packed. Replies come in the order of the commands, so
matching a reply to its command is a popleft, and a cancelled caller keeps its position in the queue: its
reply is read and dropped.

Commands in flight are bounded in count and bytes. Above that limit a command keeps only its arguments and
waits, first come, first served. When the connection ends, its owner gets every command that had not been
answered, those that were sent separate from those that were not.

Round-trip times are measured per write, from the write to the arrival of its last reply: two clock readings
per write, however many commands it carries, so it is always on.

A connection belongs to the event loop that opened it. Commands from other threads and from forked children
are refused by `Link`, those from another loop of the same thread here, where a tick's first command schedules
the flush: nothing of them is queued. A thread runs one loop at a time, so it is enough to ask whether ours is
running; `asyncio.get_running_loop`, which also asks the kernel for the process id, takes ten times as long.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import hiredis

from ephemera.errors import LoopMisuse, ServerError
from ephemera.wire._busy_polling import BusyPolling
from ephemera.wire._commands import Arg
from ephemera.wire._latency_sample import LatencySample
from ephemera.wire._packed_commands import pack, packing_error, unpack_command
from ephemera.wire._stall_detector import StallDetector
from ephemera.wire._url import Credentials

LATENCY_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Upper bounds of the latency buckets, in seconds; a last bucket has no bound."""

_LARGE = 16 * 1024
"""Bytes of a command that is written at once, so that the limit of bytes holds within a tick too."""
_BATCH = 100
"""Commands written together when few are in flight: a batch from an idle connection is one write."""
_BUSY = 16
"""With more than this many in flight, a quarter of them is written together: the server works on one part
while we pack the next, where with all at once each side would idle while the other works. On a cluster each
node gets a part anyway, and fewer writes make a call a tenth cheaper."""
PROTOCOL_ERRORS = (hiredis.ProtocolError, TypeError, RecursionError, IndexError, MemoryError)
"""What parsing raises for data that is not of the Redis protocol."""
_INCOMPLETE = object()
_Push = hiredis.PushNotification
# Pushes that confirm a subscription command; in RESP3 they come in place of its reply.
_CONFIRMATIONS = frozenset(
    (b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ssubscribe", b"sunsubscribe")
)


class ReplyHandler(Protocol):
    """Receives the reply to a command: an asyncio future, or any object with these methods of one."""

    def done(self) -> bool:
        """Whether it has a reply already, or needs none any more."""

    def set_result(self, result: Any, /) -> None:
        """The server replied."""

    def set_exception(self, exception: BaseException, /) -> None:
        """The server replied with an error, or could not be reached."""


Handler = TypeVar("Handler", bound=ReplyHandler)


class Entry(NamedTuple):
    """A command that was sent, and who waits for its reply."""

    packed: bytes
    reply: ReplyHandler

    @property
    def args(self) -> tuple[Arg, ...]:
        """The command's arguments."""
        return unpack_command(self.packed)

    @property
    def attempts(self) -> int:
        """How often it had been sent before."""
        return self.packed.attempts if isinstance(self.packed, RepeatedCommand) else 0


class RepeatedCommand(bytes):
    """A packed command that was sent before."""

    attempts: int

    @classmethod
    def of(cls, packed: bytes, attempts: int) -> RepeatedCommand:
        """The command, which was sent this many times already."""
        self = cls(packed)
        self.attempts = attempts
        return self


class Latencies:
    """A histogram of round-trip times, in commands."""

    __slots__ = ("counts", "sample", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS) + 1)
        self.seconds = 0.0
        """The sum over all commands."""
        self.sample: LatencySample | None = None
        """Where writes are collected, once latencies by keyspace are wanted."""

    def add(self, seconds: float, commands: int) -> None:
        """Count the commands of one write."""
        self.counts[bisect_left(LATENCY_BOUNDS, seconds)] += commands
        self.seconds += seconds * commands


class ConnectionOwner(Protocol):
    """What a connection reports to."""

    def on_error(self, entry: Entry, error: ServerError) -> None:
        """The server replied to a command with an error; the owner completes the entry's reply."""

    def on_push(self, push: list[Any]) -> None:
        """The server sent something that is not a reply: a message or an invalidation."""

    def expects_silence(self) -> bool:
        """Whether the server may be busy with a slow call of ours, so that no reply is not a stall."""

    def on_lost(self, problem: str, sent: list[Entry], unsent: list[ReplyHandler]) -> None:
        """The connection ended. `sent` may have been executed, `unsent` were not."""


class Connection(asyncio.Protocol):
    """A connected socket that multiplexes commands; opened and owned by a `Link`."""

    def __init__(
        self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop, timeout: float, limits: tuple[int, int]
    ) -> None:
        self.waiting: deque[ReplyHandler] = deque()
        self.out: list[bytes] = []
        self.room = min(_BATCH, limits[0])
        """Commands that `out` may hold before it is written."""
        self.flushing = False
        """Whether this tick ends with a `flush`."""
        self.at_limit = False
        """Whether commands have to wait for their turn."""
        self.ready = False
        """Whether a flush is scheduled and commands need not wait: the one check of the hot path."""
        self.lost: asyncio.Future[None] = loop.create_future()
        self.stalled = False
        """Whether it was ended because the server did not answer."""
        self.is_one_of_many = False
        """Whether the commands of a tick go to several servers, which so work side by side anyway."""
        self.latencies = Latencies()
        self.credentials = Credentials()
        self._owner = owner
        self._loop = loop
        self._timeout = timeout
        self._max_calls, self._max_bytes = limits
        self._sent: deque[tuple[list[bytes], int, float]] = deque()  # writes: commands, bytes, time
        self._sent_count = 0  # commands in `_sent`; the first of them may be answered
        self._bytes = 0  # in `_sent`
        self._batch = _BATCH
        self._sent_commands: list[bytes] | None = None
        self._polling = BusyPolling(loop, self.waiting)
        self._queued: deque[tuple[bytes | tuple[Arg, ...], ReplyHandler]] = deque()
        self._reader = hiredis.Reader(
            protocolError=hiredis.ProtocolError, replyError=ServerError, notEnoughData=_INCOMPLETE
        )
        self._gets: Callable[[], Any] = self._reader.gets
        self._transport: asyncio.Transport
        self._stall: StallDetector
        self._problem = ""
        _connections.add(self)

    def send(self, packed: bytes, reply: Handler) -> Handler:
        """Queue a command for this tick's write, and return its reply handler: the one way to send."""
        if not self.ready and self._must_wait():
            self._queued.append((packed, reply))
            return reply
        self.waiting.append(reply)
        out = self.out
        out.append(packed)
        if len(out) >= self.room or len(packed) >= _LARGE:
            self.write()
        return reply

    def _must_wait(self) -> bool:
        """Whether the limit is reached; if not, this tick ends with a flush. Refuses another loop."""
        if not self._loop.is_running():
            raise loop_misuse()
        if self.at_limit:
            return True
        if not self.flushing:
            self.flushing = True
            self._loop.call_soon(self.flush)
        self.ready = True
        return False

    def send_args(self, args: tuple[Arg, ...], reply: Handler) -> Handler:
        """Pack a command and send it; at the limit it keeps only its arguments while it waits."""
        if self.at_limit:
            self._queued.append((args, reply))
            return reply
        try:
            packed = pack(args)
        except TypeError as problem:
            raise packing_error(args, problem) from None
        return self.send(packed, reply)

    def send_internal(self, *args: Arg) -> asyncio.Future[Any]:
        """Send a command of the wire itself, which is never repeated on another connection."""
        return self.send(RepeatedCommand.of(pack(args), 1), self._loop.create_future())

    def abort(self, problem: str) -> None:
        """End the connection now; the owner gets what waits, with this problem."""
        if not self._problem:
            self._problem = problem
        self._transport.abort()

    def detach(self) -> int:
        """Take its socket off the loop: the descriptor of the same connection, for the caller to own."""
        descriptor = os.dup(self._transport.get_extra_info("socket").fileno())
        self.abort("it was detached")  # closes the loop's descriptor; the connection stays open
        return descriptor

    def close(self) -> None:
        """End the connection once everything written has left."""
        self._problem = self._problem or "closed"
        self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; the in-flight limit bounds its buffer, so writing is never paused as well."""
        self._transport = cast("asyncio.Transport", transport)
        # Otherwise uvloop holds back what is written until the end of the tick.
        self._transport.set_write_buffer_limits(high=0)
        self._stall = StallDetector(
            self._loop,
            self._transport,
            self._timeout,
            self.waiting,
            self._on_stall,
            self._owner.expects_silence,
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand everything that still waits to the owner."""
        self._stall.stop()
        problem = self._problem or (f"connection lost ({exc})" if exc else "the server closed the connection")
        entries = [Entry(*pair) for pair in zip(self._unanswered(), self.waiting, strict=False)]
        first_unsent = max(0, len(entries) - len(self.out))
        unsent = [entry.reply for entry in entries[first_unsent:]]
        unsent += [reply for _, reply in self._queued]
        self.out, self._queued = [], deque()
        self._sent, self._sent_count = deque(), 0
        self.waiting.clear()
        try:
            self._owner.on_lost(problem, entries[:first_unsent], unsent)
        finally:
            if not self.lost.done():
                self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived and complete the replies in it."""
        self._stall.progress_at = self._loop.time()
        in_flight = len(self.waiting)
        self._batch = in_flight // 4 if in_flight > _BUSY and not self.is_one_of_many else _BATCH
        try:
            self._reader.feed(data)
            self._deliver()
            self._drop_answered()
        except PROTOCOL_ERRORS as problem:
            self.abort(f"it does not speak the Redis protocol ({_shortened(problem)})")
        self._sent_commands = None
        if self.at_limit:
            self._admit_queued()
        if not self.flushing:
            # Callers that have their replies run next, and their next commands leave right after them: in the
            # same turn of the loop, where a flush that they schedule would come one poll later.
            self.flushing = True
            self._loop.call_soon(self.flush)
        self.ready = not self.at_limit

    def _deliver(self) -> None:
        """Complete the replies of sent commands; a reply to a command that was not sent is an error."""
        gets, waiting = self._gets, self.waiting
        popleft = waiting.popleft
        while (sent := len(waiting) - len(self.out)) > 0:
            for _ in repeat(None, sent):
                if (reply := gets()) is _INCOMPLETE:
                    return
                kind = reply.__class__
                if kind is bytes or (kind is not ServerError and kind is not _Push):
                    try:  # noqa: SIM105 - contextlib.suppress costs a call per reply
                        popleft().set_result(reply)
                    except asyncio.InvalidStateError:
                        pass  # its caller was cancelled
                elif kind is ServerError:
                    packed = self._next_command()
                    self._owner.on_error(Entry(packed, popleft()), reply)
                else:
                    self._on_push(reply)
        while (reply := gets()) is not _INCOMPLETE:
            if reply.__class__ is not _Push:
                raise hiredis.ProtocolError("more replies than commands")
            self._on_push(reply)

    def _next_command(self) -> bytes:
        """The packed command that the next reply answers; the list is made once per read."""
        if self._sent_commands is None:
            self._sent_commands = [*chain.from_iterable(commands for commands, _, _ in self._sent), *self.out]
        return self._sent_commands[self._sent_count + len(self.out) - len(self.waiting)]

    def _unanswered(self) -> Iterator[bytes]:
        """The packed commands of `waiting`, in its order."""
        commands = chain(chain.from_iterable(commands for commands, _, _ in self._sent), self.out)
        return islice(commands, max(0, self._sent_count + len(self.out) - len(self.waiting)), None)

    def _drop_answered(self) -> None:
        """Drop the writes whose last command is answered, and compute the room there is now."""
        sent, waiting, out = self._sent, len(self.waiting), len(self.out)
        answered = self._sent_count + out - waiting
        now = monotonic()  # uvloop's clock has a resolution of milliseconds, and stands still within a tick
        while sent and answered >= len(sent[0][0]):
            commands, size, written_at = sent.popleft()
            self.latencies.add(now - written_at, len(commands))
            if self.latencies.sample is not None:
                self.latencies.sample.add(commands[0], now - written_at)
            answered -= len(commands)
            self._sent_count -= len(commands)
            self._bytes -= size
        self.room = min(self._batch, self._max_calls - waiting + out)

    def _on_push(self, push: list[Any]) -> None:
        if not _is_well_formed(push):
            raise hiredis.ProtocolError(f"a malformed push {push[0]!r}")
        if push[0] in _CONFIRMATIONS and self.waiting and _confirms(push, self._next_command()):
            reply = self.waiting.popleft()
            if not reply.done():
                reply.set_result(push)
        self._owner.on_push(push)

    def flush(self) -> None:
        """End a tick: write its commands."""
        self.flushing = self.ready = False
        if self.out:
            self.write()

    def write(self) -> None:
        """Hand `out` to the socket, and compute the room that is left."""
        if self._transport.is_closing():
            self.at_limit, self.ready = True, False
            return  # the owner gets `out` as not sent
        out, self.out = self.out, []
        stall = self._stall
        if len(self.waiting) == len(out):
            stall.progress_at = self._loop.time()
        data = out[0] if len(out) == 1 else b"".join(out)
        now = monotonic()
        self._sent.append((out, len(data), now))
        self._sent_count += len(out)
        self._bytes += len(data)
        left = self._max_calls - len(self.waiting)
        self.room = min(2 * self.room, left)  # a tick that continues is a large batch: ever fewer writes
        if left <= 0 or self._bytes >= self._max_bytes:
            self.at_limit, self.ready = True, False
        stall.written += len(data)
        self._transport.write(data)
        if len(self.waiting) == 1:
            self._polling.start(now)
        if stall.timer is None:
            stall.start()

    def _on_stall(self, problem: str) -> None:
        self.stalled = True
        self.abort(problem)

    def _admit_queued(self) -> None:
        """Send what waited for its turn, in order, while there is room."""
        self.at_limit = len(self.waiting) >= self._max_calls or self._bytes >= self._max_bytes
        while self._queued and not self.at_limit:
            command, reply = self._queued.popleft()
            if reply.done():
                continue
            try:
                if isinstance(command, bytes):
                    self.send(command, reply)
                else:
                    self.send_args(command, reply)
            except (TypeError, ValueError) as error:
                reply.set_exception(error)
        self.at_limit = self.at_limit or bool(self._queued)
        self.ready = False


def refuse_other_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise `LoopMisuse` unless this is the running loop; a forked child has none, or one of its own."""
    if asyncio._get_running_loop() is not loop:
        raise loop_misuse()


def loop_misuse() -> LoopMisuse:
    """The error for a call from another loop, thread or process."""
    if asyncio._get_running_loop() is None:
        advice = (
            "In synchronous code, use a store of ephemera.sync.connect(...), in any thread, and call it "
            "directly: store.call(...), not store.aio.call(...)"
        )
    else:
        advice = "Open a store here: async with ephemera.connect(...)"
    return LoopMisuse(
        "this store was opened in another event loop, thread or process (before os.fork()), and its "
        f"connection belongs to that one; nothing was sent. {advice}"
    )


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_parents_transports: list[asyncio.Transport] = []


def _after_fork() -> None:
    """Cut a child off from its parent's sockets: it may neither write to them nor close them.

    The child's transports share the parent's event queue in the kernel, so closing one here, or freeing it,
    would end the parent's connection as well. They are kept, and replaced by one that does nothing.
    """
    for connection in list(_connections):
        if hasattr(connection, "_transport"):
            _parents_transports.append(connection._transport)
            connection._transport = _ParentsTransport()
        connection.flushing = connection.ready = False
        connection.out.clear()


class _ParentsTransport(asyncio.Transport):
    """Stands for a transport of the parent process."""

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


os.register_at_fork(after_in_child=_after_fork)


def _is_well_formed(push: list[Any]) -> bool:
    """Whether a push has the form of its kind: a misread invalidation would leave local copies stale."""
    kind = push[0]
    if kind == b"invalidate":
        keys = push[1] if len(push) == 2 else ()
        return keys is None or (type(keys) is list and all(type(key) is bytes for key in keys))
    if kind in (b"message", b"smessage", b"pmessage"):
        return len(push) == (4 if kind == b"pmessage" else 3) and all(type(part) is bytes for part in push)
    if kind in _CONFIRMATIONS:
        return len(push) == 3 and (push[1] is None or type(push[1]) is bytes)
    return True


def _confirms(push: list[Any], packed: bytes) -> bool:
    name, *channels = unpack_command(packed)
    return name.lower() == push[0] and channels[:1] == ([] if push[1] is None else [push[1]])


def _shortened(problem: Exception) -> str:
    text = str(problem)
    return text if len(text) <= 80 else text[:77] + "..."
