"""Additions of one loop tick leave as one: amounts to the same counter are summed before they are sent.

Tasks that count at the same moment share a script call a shard, and each is answered when its amount is on
the server, as if it had called alone. Where many count all the time, half of them share a call: the server
adds up one half while the other is gathered (`Pace`). When the server refuses what was gathered (no room for
one of the counters, a sum beyond 2**53), nothing of it was added, and each addition is made by itself: the
one at fault fails, the others do not.
"""

from __future__ import annotations

from asyncio import Future, InvalidStateError
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from ephemera.errors import BacklogFull, ServerError
from ephemera.keyspace import Stats
from ephemera.wire import Client, ScriptPrefix, pack_argument

if TYPE_CHECKING:
    from ephemera.patterns.write_behind._declaration import DeferredCounters

Answer: TypeAlias = "Future[bool]"
"""What one who added waits for."""

Addition: TypeAlias = tuple[tuple[bytes, int], ...]
"""Counters, each `packed`, and what is added to each."""

_MOST = 1000  # counters that one script call adds to
_TOGETHER = 200  # additions after which a script leaves in any case
_HALF = 60  # additions above which a half is no better than `_TOGETHER`
_FEW = 8  # additions that are not worth a script of their own while others are gathered


class _Amounts(dict[int, bytes]):
    """Amounts, each packed; the usual ones are remembered."""

    def __missing__(self, amount: int) -> bytes:
        written = pack_argument(amount)
        if len(self) < _MOST:
            self[amount] = written
        return written


_AMOUNTS = _Amounts()


class Pace:
    """How many additions leave together: half of those that are under way, where they are many."""

    __slots__ = ("_everybody", "_under_way", "together")

    def __init__(self) -> None:
        self.together = _TOGETHER
        self._under_way = 0
        self._everybody = True

    def left(self, additions: int) -> None:
        """So many were sent."""
        self._under_way += additions
        self._everybody = True

    def answered(self, additions: int) -> None:
        """So many are answered, and those who made them may add again at once."""
        # After two answers in one read some are back already, and half of the rest would be a quarter.
        if self._everybody:
            half = self._under_way // 2
            self.together = half if _FEW < half <= _HALF else _TOGETHER
            self._everybody = False
        self._under_way -= additions


class Shard:
    """A shard of one store's counters: what is gathered for it at the moment, and how that leaves."""

    __slots__ = ("additions", "answers", "beginning", "client", "declared", "number", "pace", "stats")

    def __init__(
        self,
        declared: DeferredCounters,
        number: int,
        client: Client,
        beginning: ScriptPrefix,
        pace: Pace,
        stats: Stats,
    ) -> None:
        self.declared = declared
        self.number = number
        self.client = client
        self.beginning = beginning
        self.pace = pace
        self.stats = stats
        self.additions: list[Addition] = []
        self.answers: list[Answer] = []

    def leave(self) -> None:
        """Send what was gathered."""
        if self.answers:
            leaving = Gathering(self, self.additions, self.answers)
            self.additions, self.answers = [], []
            leaving.leave()

    def full(self) -> BacklogFull:
        """That there is no room for a further counter."""
        return BacklogFull(self.declared.name, self.number, self.declared.shards.most)


class Gathering:
    """Additions to a shard that leave together: what the server's reply to them settles."""

    __slots__ = ("_additions", "_answers", "_settled", "_shard")

    def __init__(self, shard: Shard, additions: list[Addition], answers: list[Answer]) -> None:
        self._shard = shard
        self._additions = additions
        self._answers = answers
        self._settled = False

    def leave(self, beginning: ScriptPrefix | None = None) -> None:
        """Send them, all or none; whoever waits is answered with the reply."""
        additions, answers, shard = self._additions, self._answers, self._shard
        sums = summed(additions)
        if len(sums) > _MOST and len(additions) > 1:
            half = len(additions) // 2
            for part in (slice(half), slice(half, None)):
                Gathering(shard, additions[part], answers[part]).leave()
            return
        shard.pace.left(len(additions))
        shard.stats.writes += 1
        amounts = map(_AMOUNTS.__getitem__, sums.values())
        try:
            shard.client.run_for(self, beginning or shard.beginning, (*sums, *amounts))
        except Exception as problem:  # whoever waits must hear of it, whatever it is
            if not self._settled:
                self._settle()
                self._fail(problem)

    # What the wire tells it (see `connection.Reply`).

    def done(self) -> bool:
        """Whether it is settled; what has left is counted, whoever still waits for it."""
        return self._settled

    def set_result(self, said: Any, /) -> None:
        """The server added all of it (1), or none, as its id was there (0) or there was no room (-1)."""
        if self._settled:
            return
        self._settle()
        if said not in (0, 1):
            self._refuse(self._shard.full())
            return
        counted = said == 1
        for answer in self._answers:
            try:  # noqa: SIM105 - contextlib.suppress costs a call per answer
                answer.set_result(counted)
            except InvalidStateError:
                pass  # a caller who was cancelled waits no more

    def set_exception(self, problem: BaseException, /) -> None:
        """The server refused it, or cannot be asked."""
        if self._settled:
            return
        self._settle()
        if isinstance(problem, ServerError):
            self._refuse(problem)
        else:
            self._fail(problem)

    def _settle(self) -> None:
        self._settled = True
        self._shard.pace.answered(len(self._answers))

    def _refuse(self, problem: BaseException) -> None:
        """Make each addition by itself, to find the one at fault."""
        if len(self._answers) == 1:
            self._fail(problem)
            return
        for addition, answer in zip(self._additions, self._answers, strict=True):
            if not answer.done():
                Gathering(self._shard, [addition], [answer]).leave()

    def _fail(self, problem: BaseException) -> None:
        for answer in self._answers:
            if not answer.done():
                self._shard.stats.errors += 1
                answer.set_exception(problem)


def summed(additions: Iterable[Addition]) -> dict[bytes, int]:
    """What is added to each counter in all."""
    sums: dict[bytes, int] = {}
    for addition in additions:
        for counter, amount in addition:
            sums[counter] = amount + sums[counter] if counter in sums else amount
    return sums
