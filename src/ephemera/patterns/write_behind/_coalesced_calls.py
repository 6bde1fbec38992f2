"""Coalesced calls: additions made in one event-loop tick are summed per counter and sent as one script call.

Tasks that count at the same moment share one call per shard, and each future completes when its amount is on
the server, as if it had been sent alone. Under continuous load, half of the outstanding additions share a
call: the server adds one half while the other is collected (`CallSizer`). When the server refuses a call
(the backlog is full, or a sum would exceed 2**53), nothing was added, and each addition is retried on its
own: only the one at fault fails.
"""

from __future__ import annotations

from asyncio import Future, InvalidStateError
from collections.abc import Iterable
from typing import Any, TypeAlias

from ephemera.errors import BacklogFull, ServerError
from ephemera.keyspace import Stats
from ephemera.wire import Client, ScriptPrefix, pack_argument

Addition: TypeAlias = tuple[tuple[bytes, int], ...]
"""Counters, packed, with the amount to add."""

_MAX_COUNTERS = 1000  # that one script call adds to
_MAX_ADDITIONS = 200  # that one script call carries
_MAX_HALF = 60  # above this, calls of half the outstanding additions are no better than full ones
_MIN_HALF = 8  # below this, a call of its own costs more than it gains


class _PackedAmounts(dict[int, bytes]):
    """Packed amounts; the common ones are memoized. Not a `BoundedCache`: reads fill it by `__missing__`."""

    def __missing__(self, amount: int) -> bytes:
        result = pack_argument(amount)
        if len(self) < _MAX_COUNTERS:
            self[amount] = result
        return result


_PACKED_AMOUNTS = _PackedAmounts()


class CallSizer:
    """Decides how many additions share a call: under continuous load, half of the outstanding ones."""

    __slots__ = ("_all_outstanding", "_outstanding", "size")

    def __init__(self) -> None:
        self.size = _MAX_ADDITIONS
        self._outstanding = 0
        self._all_outstanding = True

    def sent(self, additions: int) -> None:
        """Count additions that were sent."""
        self._outstanding += additions
        self._all_outstanding = True

    def completed(self, additions: int) -> None:
        """Count additions whose reply has arrived; their callers may add again at once."""
        # After two replies in one read some callers have added again, and half of the rest would be a
        # quarter.
        if self._all_outstanding:
            half = self._outstanding // 2
            self.size = half if _MIN_HALF < half <= _MAX_HALF else _MAX_ADDITIONS
            self._all_outstanding = False
        self._outstanding -= additions


class ShardBuffer:
    """The additions to one shard that were made in this tick and not sent yet."""

    __slots__ = ("additions", "capacity", "client", "futures", "name", "number", "prefix", "sizer", "stats")

    def __init__(
        self,
        name: str,
        number: int,
        capacity: int,
        client: Client,
        prefix: ScriptPrefix,
        sizer: CallSizer,
        stats: Stats,
    ) -> None:
        self.name = name
        self.number = number
        self.capacity = capacity
        self.client = client
        self.prefix = prefix
        self.sizer = sizer
        self.stats = stats
        self.additions: list[Addition] = []
        self.futures: list[Future[bool]] = []

    def send(self) -> None:
        """Send the buffered additions."""
        if self.futures:
            call = CoalescedCall(self, self.additions, self.futures)
            self.additions, self.futures = [], []
            call.send()

    def full(self) -> BacklogFull:
        """Return the error for an addition that finds no room."""
        return BacklogFull(self.name, self.number, self.capacity)


class CoalescedCall:
    """One script call for several additions to a shard. It receives the reply and completes their futures."""

    __slots__ = ("_additions", "_completed", "_futures", "_shard")

    def __init__(self, shard: ShardBuffer, additions: list[Addition], futures: list[Future[bool]]) -> None:
        self._shard = shard
        self._additions = additions
        self._futures = futures
        self._completed = False

    def send(self, prefix: ScriptPrefix | None = None) -> None:
        """Send the additions, all or none."""
        additions, futures, shard = self._additions, self._futures, self._shard
        sums = sum_by_counter(additions)
        if len(sums) > _MAX_COUNTERS and len(additions) > 1:
            half = len(additions) // 2
            for part in (slice(half), slice(half, None)):
                CoalescedCall(shard, additions[part], futures[part]).send()
            return
        shard.sizer.sent(len(additions))
        shard.stats.writes += 1
        amounts = map(_PACKED_AMOUNTS.__getitem__, sums.values())
        try:
            shard.client.send_to(self, (prefix or shard.prefix).with_arguments((*sums, *amounts)))
        except Exception as problem:  # every caller must get it, whatever it is
            if not self._completed:
                self._complete()
                self._fail(problem)

    # The receiving side of the wire (see `connection.Reply`).

    def done(self) -> bool:
        """Whether the reply has arrived. Callers cannot cancel what was sent."""
        return self._completed

    def set_result(self, reply: Any, /) -> None:
        """Take the script's reply: 1 all added, 0 a known idempotency key, -1 no room."""
        if self._completed:
            return
        self._complete()
        if reply not in (0, 1):
            self._retry_alone(self._shard.full())
            return
        counted = reply == 1
        for future in self._futures:
            try:  # noqa: SIM105 - contextlib.suppress costs a call per future
                future.set_result(counted)
            except InvalidStateError:
                pass  # the caller was cancelled

    def set_exception(self, problem: BaseException, /) -> None:
        """Take the error: the server refused the call, or could not be reached."""
        if self._completed:
            return
        self._complete()
        if isinstance(problem, ServerError):
            self._retry_alone(problem)
        else:
            self._fail(problem)

    def _complete(self) -> None:
        self._completed = True
        self._shard.sizer.completed(len(self._futures))

    def _retry_alone(self, problem: BaseException) -> None:
        """Retry each addition on its own, to find the one at fault."""
        if len(self._futures) == 1:
            self._fail(problem)
            return
        for addition, future in zip(self._additions, self._futures, strict=True):
            if not future.done():
                CoalescedCall(self._shard, [addition], [future]).send()

    def _fail(self, problem: BaseException) -> None:
        for future in self._futures:
            if not future.done():
                self._shard.stats.errors += 1
                future.set_exception(problem)


def sum_by_counter(additions: Iterable[Addition]) -> dict[bytes, int]:
    """Sum the amounts of each counter."""
    sums: dict[bytes, int] = {}
    for addition in additions:
        for counter, amount in addition:
            sums[counter] = amount + sums[counter] if counter in sums else amount
    return sums
