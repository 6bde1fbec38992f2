"""One socket's life: commands out in batches, replies in by order.

Every command is packed and put on two queues: its bytes on `out`, its reply on `waiting`. What is asked in
one loop tick leaves in one write, or in a few when many ask, so that the server works on the first ones while
the others are still being packed. Replies come in the order of the commands, so matching is a popleft, and:

- a cancelled caller leaves its place in the queue; its reply is read and dropped, nobody gets another's;
- one timer per connection is enough: the server is stalled when something waits for a reply and for `timeout`
  seconds no byte has arrived and no large write has moved on. Progress counts, not age, so a 64 MB value over
  a slow line is not a stall, and a frozen server is noticed within one timeout.

What is in flight is bounded in count and bytes. Above that a call keeps only its arguments and waits for its
turn, first come first served. When the connection ends, the owner gets every entry, sent and unsent apart.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from time import monotonic
from typing import Any, NamedTuple, Protocol, cast

import hiredis

from ephemera.errors import ServerError
from ephemera.wire._commands import Arg, unpackable
from ephemera.wire._latency import Latencies
from ephemera.wire._write_progress import Outflow

LARGE = 16 * 1024
"""Bytes of a command that is written at once, so that the limit of bytes holds within a tick too."""
_BATCH = 100
"""Commands that are written together when few are in flight: a batch of somebody's is one write."""
_BUSY = 16
"""With more than these in flight, a quarter of them are: the server works on one part while we make the next,
where with all at once each would idle while the other works."""
_INCOMPLETE = object()
_Push = hiredis.PushNotification
# Pushes that confirm a subscription command; in RESP3 they come in place of its reply.
_CONFIRMATIONS = frozenset(
    (b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ssubscribe", b"sunsubscribe")
)


def _any_form(_: list[Any]) -> bool:
    return True


def _confirms_one(push: list[Any]) -> bool:
    return len(push) == 3 and (push[1] is None or type(push[1]) is bytes)


def _all_bytes(push: list[Any]) -> bool:
    return len(push) == (4 if push[0] == b"pmessage" else 3) and all(type(part) is bytes for part in push)


def _names_keys(push: list[Any]) -> bool:
    return len(push) == 2 and (
        push[1] is None or (type(push[1]) is list and all(type(key) is bytes for key in push[1]))
    )


# What is listened to must have its form: a change of keys that is not understood would leave copies stale.
_FORMS: dict[bytes, Callable[[list[Any]], bool]] = {
    **dict.fromkeys(_CONFIRMATIONS, _confirms_one),
    **dict.fromkeys((b"message", b"pmessage", b"smessage"), _all_bytes),
    b"invalidate": _names_keys,
}


class ReplyHandler(Protocol):
    """What a reply settles: an asyncio future, or a thread that waits (see `blocking`)."""

    def done(self) -> bool:
        """Whether it is settled, or nobody waits any more."""

    def set_result(self, result: Any, /) -> None:
        """The server answered."""

    def set_exception(self, exception: BaseException, /) -> None:
        """It answered with an error, or not at all."""


class Entry(NamedTuple):
    """A command on its way: who waits for it, what it is, how often it was sent before."""

    reply: ReplyHandler
    args: tuple[Arg, ...]
    attempts: int


class _Repeated(bytes):
    """A packed command that was sent before."""

    attempts: int


class Owner(Protocol):
    """Who a connection reports to."""

    def on_error(self, entry: Entry, error: ServerError) -> None:
        """The server answered a command with an error; the owner settles the entry's reply."""

    def on_push(self, push: list[Any]) -> None:
        """The server sent something nobody asked for: a message or an invalidation."""

    def on_lost(self, problem: str, sent: list[Entry], unsent: list[Entry]) -> None:
        """The connection ended; nobody knows whether `sent` were executed, `unsent` were not."""


class Connection(asyncio.Protocol):
    """A connected socket that multiplexes commands; made by `Link`, which owns it."""

    def __init__(
        self, owner: Owner, loop: asyncio.AbstractEventLoop, timeout: float, limits: tuple[int, int]
    ) -> None:
        self.waiting: deque[ReplyHandler] = deque()
        self.out: list[bytes] = []
        self.room = min(_BATCH, limits[0])
        """Commands that `out` may hold before it is written."""
        self.flushing = False
        """Whether this tick ends with a `flush`."""
        self.crowded = False
        self.lost: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._loop = loop
        self._timeout = timeout
        self._max_calls, self._max_bytes = limits
        # What left in one write, with its bytes, until the last of it is answered.
        self._sent: deque[tuple[list[bytes], int, float]] = deque()
        self.latencies = Latencies()
        self._kept = 0  # commands in `_sent`; the first of them may be answered
        self._bytes = 0  # of `_sent`
        self._part = _BATCH
        self._commands: list[bytes] | None = None
        self._queued: deque[tuple[ReplyHandler, tuple[Arg, ...]]] = deque()
        self._reader = hiredis.Reader(
            protocolError=hiredis.ProtocolError, replyError=ServerError, notEnoughData=_INCOMPLETE
        )
        self._gets: Callable[[], Any] = self._reader.gets
        # hiredis types its argument as a tuple of one.
        self._pack: Callable[[tuple[Arg, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
        self._transport: asyncio.Transport
        self._outflow: Outflow
        self._sweeper: asyncio.TimerHandle | None = None
        self._progress_at = 0.0
        self._written = 0
        self._suspected = -1.0
        self._looks_at = 0.0
        self._problem = ""

    def put(self, reply: ReplyHandler, args: tuple[Arg, ...], attempts: int = 0) -> None:
        """Queue a command for this tick's write; its outcome settles `reply`."""
        try:
            packed = self._pack(args)
        except TypeError as problem:
            raise unpackable(args, problem) from None
        if attempts:
            packed = _Repeated(packed)
            packed.attempts = attempts
        self.put_packed(reply, packed)

    def put_packed(self, reply: ReplyHandler, packed: bytes) -> None:
        """Queue a command that is packed already. `Link.call` has a copy."""
        self.waiting.append(reply)
        out = self.out
        out.append(packed)
        if not self.flushing:
            self.flushing = True
            self._loop.call_soon(self.flush)
        if len(out) >= self.room or len(packed) >= LARGE:
            self.write()

    def put_in_turn(self, reply: ReplyHandler, args: tuple[Arg, ...]) -> None:
        """Queue a command behind those that wait for room."""
        self._queued.append((reply, args))

    def send(self, *args: Arg) -> asyncio.Future[Any]:
        """Queue a command of the wire's own, which is never repeated on another connection."""
        future = self._loop.create_future()
        self.put(future, args, attempts=1)
        return future

    def abort(self, problem: str) -> None:
        """End the connection now; whatever waits is handed to the owner with this problem."""
        if not self._problem:
            self._problem = problem
        self._transport.abort()

    def close(self) -> None:
        """End the connection after what is written has left."""
        self._problem = self._problem or "closed"
        self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; the in-flight limit bounds its buffer, so writing is never paused on top."""
        self._transport = transport  # type: ignore[assignment]
        # Otherwise uvloop holds back what is written until the end of the tick.
        self._transport.set_write_buffer_limits(high=0)
        self._outflow = Outflow(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand everything that still waits to the owner."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        problem = self._problem or (f"connection lost ({exc})" if exc else "the server closed the connection")
        entries = [_entry(*pair) for pair in zip(self.waiting, self._unanswered(), strict=False)]
        first_unsent = max(0, len(entries) - len(self.out))
        queued = [Entry(reply, args, 0) for reply, args in self._queued]
        self.out, self._queued = [], deque()
        self._sent, self._kept = deque(), 0
        self.waiting.clear()
        try:
            self._owner.on_lost(problem, entries[:first_unsent], entries[first_unsent:] + queued)
        finally:
            if not self.lost.done():
                self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Parse what came and settle the replies it completes."""
        self._progress_at = self._loop.time()
        in_flight = len(self.waiting)
        self._part = in_flight // 4 if in_flight > _BUSY else _BATCH
        try:
            self._reader.feed(data)
            self._deliver()
            self._forget_answered()
        except (hiredis.ProtocolError, TypeError, RecursionError, IndexError, MemoryError) as problem:
            self.abort(f"it does not speak the Redis protocol ({_shortened(problem)})")
        self._commands = None
        if self.crowded:
            self._let_in()
        if not self.flushing:
            # Those who have their replies run next, and what they ask for leaves right after them: in the
            # same turn of the loop, where a flush that they schedule would come one poll later.
            self.flushing = True
            self._loop.call_soon(self.flush)

    def _deliver(self) -> None:
        """Settle what was sent with what came; a reply to what has not left yet is nobody's."""
        gets, waiting = self._gets, self.waiting
        popleft = waiting.popleft
        while (sent := len(waiting) - len(self.out)) > 0:
            for _ in repeat(None, sent):
                if (said := gets()) is _INCOMPLETE:
                    return
                kind = said.__class__
                if kind is bytes or (kind is not ServerError and kind is not _Push):
                    try:  # noqa: SIM105 - contextlib.suppress costs a call per reply
                        popleft().set_result(said)
                    except asyncio.InvalidStateError:
                        pass  # its caller was cancelled; the reply is dropped in its place
                elif kind is ServerError:
                    packed = self._asked()
                    self._owner.on_error(_entry(popleft(), packed), said)
                else:
                    self._pushed(said)
        while (said := gets()) is not _INCOMPLETE:
            if said.__class__ is not _Push:
                raise hiredis.ProtocolError("more replies than commands")
            self._pushed(said)

    def _asked(self) -> bytes:
        """The packed command that the next reply answers; listed once a read, however many errors it has."""
        if self._commands is None:
            self._commands = [*chain.from_iterable(commands for commands, _, _ in self._sent), *self.out]
        return self._commands[self._kept + len(self.out) - len(self.waiting)]

    def _unanswered(self) -> Iterator[bytes]:
        """The packed commands that `waiting` waits for, in its order."""
        kept = chain(chain.from_iterable(commands for commands, _, _ in self._sent), self.out)
        return islice(kept, max(0, self._kept + len(self.out) - len(self.waiting)), None)

    def _forget_answered(self) -> None:
        """Let go of the writes whose last command is answered, and see what room there is now."""
        sent, waiting, out = self._sent, len(self.waiting), len(self.out)
        answered = self._kept + out - waiting
        now = monotonic()  # uvloop's own clock counts in milliseconds, and stands still within a tick
        while sent and answered >= len(sent[0][0]):
            commands, size, left_at = sent.popleft()
            self.latencies.add(now - left_at, len(commands))
            answered -= len(commands)
            self._kept -= len(commands)
            self._bytes -= size
        self.room = min(self._part, self._max_calls - waiting + out)

    def _pushed(self, push: list[Any]) -> None:
        if not _FORMS.get(push[0], _any_form)(push):
            raise hiredis.ProtocolError(f"a push {push[0]!r} of another form")
        if push[0] in _CONFIRMATIONS and self.waiting and _confirms(push, unpack_command(self._asked())):
            reply = self.waiting.popleft()
            if not reply.done():
                reply.set_result(push)
        self._owner.on_push(push)

    def flush(self) -> None:
        """End a tick: write what it asked for."""
        self.flushing = False
        if self.out:
            self.write()

    def write(self) -> None:
        """Hand what is queued to the socket, and see what room is left."""
        if self._transport.is_closing():
            self.crowded = True
            return  # what is in `out` did not leave, and is handed to the owner so
        out, self.out = self.out, []
        if len(self.waiting) == len(out):
            self._progress_at = self._loop.time()
        data = out[0] if len(out) == 1 else b"".join(out)
        self._sent.append((out, len(data), monotonic()))
        self._kept += len(out)
        self._bytes += len(data)
        left = self._max_calls - len(self.waiting)
        self.room = min(2 * self.room, left)  # what goes on for longer is a large batch: ever fewer writes
        if left <= 0 or self._bytes >= self._max_bytes:
            self.crowded = True
        self._written += len(data)
        self._transport.write(data)
        if self._sweeper is None:
            self._look_after(self._timeout / 4)

    def _look_after(self, seconds: float) -> None:
        self._looks_at = self._loop.time() + seconds
        self._sweeper = self._loop.call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        """Abort when nothing has moved for `timeout`; look again soon while something is under way."""
        self._sweeper = None
        if not self.waiting or self._transport.is_closing():
            return
        now = self._loop.time()
        if self._outflow.moved(self._written):
            self._progress_at = now
        left = self._progress_at + self._timeout - now
        if left > 0:
            self._look_after(min(left, self._timeout / 4))
        elif self._suspected != self._progress_at:
            # A loop that was held up by its own work runs its timers before it reads its sockets: look twice.
            # Where it was held up for long the machine may have stood still, and the server with it: in that
            # time it could not have answered, so it gets all of it once more.
            self._suspected = self._progress_at
            self._look_after(self._timeout if now - self._looks_at > self._timeout / 2 else 0.002)
        else:
            self.abort(f"no answer for {self._timeout * 1000:.0f} ms")

    def _let_in(self) -> None:
        """Send what waited for room, in order, while there is room."""
        self.crowded = len(self.waiting) >= self._max_calls or self._bytes >= self._max_bytes
        while self._queued and not self.crowded:
            reply, args = self._queued.popleft()
            if reply.done():
                continue
            try:
                self.put(reply, args)
            except (TypeError, ValueError) as error:
                reply.set_exception(error)
        self.crowded = self.crowded or bool(self._queued)


def _entry(reply: ReplyHandler, packed: bytes) -> Entry:
    return Entry(reply, unpack_command(packed), packed.attempts if isinstance(packed, _Repeated) else 0)


def unpack_command(packed: bytes) -> tuple[bytes, ...]:
    """The arguments of a packed command, which reads as a reply does."""
    reader = hiredis.Reader()
    reader.feed(packed)
    return tuple(cast("list[bytes]", reader.gets()))


def _confirms(push: list[Any], words: tuple[bytes, ...]) -> bool:
    channel = words[1] if len(words) > 1 else None
    return bool(words[0].lower() == push[0] and channel == push[1])


def _shortened(problem: Exception) -> str:
    text = str(problem)
    return text if len(text) <= 80 else text[:77] + "..."
