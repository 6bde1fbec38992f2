"""Additions of one loop tick leave as one: amounts to the same counter are summed before they are sent.

Tasks that count at the same moment share a script call a shard, and each is answered when its amount is on
the server, as if it had called alone. Where many count all the time, half of them share a call: the server
adds up one half while the other is gathered (`Pace`). When the server refuses what was gathered (no room for
one of the counters, a sum beyond 2**53), nothing of it was added, and each addition is made by itself: the
one at fault fails, the others do not.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ephemera.errors import ServerError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

Answer: TypeAlias = "asyncio.Future[bool]"
"""What one who added waits for."""

Addition: TypeAlias = tuple[tuple[str, int], ...]
"""Counters, and what is added to each."""

_MOST = 1000  # counters that one script call adds to
_TOGETHER = 200  # additions after which a script leaves in any case
_HALF = 60  # additions above which a half is no better than `_TOGETHER`
_FEW = 8  # additions that are not worth a script of their own while others are gathered


class Pace:
    """How many additions leave together: half of those that are under way, where they are many."""

    __slots__ = ("_under_way", "together")

    def __init__(self) -> None:
        self.together = _TOGETHER
        self._under_way = 0

    def left(self, additions: int) -> None:
        """So many were sent."""
        self._under_way += additions

    def answered(self, additions: int) -> None:
        """So many are answered, and those who made them may add again at once."""
        half = self._under_way // 2
        self.together = half if _FEW < half <= _HALF else _TOGETHER
        self._under_way -= additions


def summed(additions: Iterable[Addition]) -> dict[str, int]:
    """What is added to each counter in all."""
    sums: dict[str, int] = {}
    for addition in additions:
        for counter, amount in addition:
            sums[counter] = sums[counter] + amount if counter in sums else amount
    return sums


class Gathering:
    """What was added to one shard, and leaves together.

    `send` adds amounts, all of them or none, and `settle` passes on what came of it to one who waits.
    """

    __slots__ = ("_additions", "_pace", "_send", "_settle")

    def __init__(
        self,
        additions: list[tuple[Addition, Answer]],
        pace: Pace,
        send: Callable[[dict[str, int]], asyncio.Future[int]],
        settle: Callable[[Answer, asyncio.Future[int]], None],
    ) -> None:
        self._additions = additions
        self._pace = pace
        self._send = send
        self._settle = settle

    def leave(self) -> None:
        """Send what was gathered; whoever waits is answered with the reply."""
        additions = self._additions
        sums = summed([addition for addition, _ in additions])
        if len(sums) > _MOST and len(additions) > 1:
            half = len(additions) // 2
            for part in (additions[:half], additions[half:]):
                Gathering(part, self._pace, self._send, self._settle).leave()
        else:
            self._pace.left(len(additions))
            self._send(sums).add_done_callback(self._answer)

    def _answer(self, sent: asyncio.Future[int]) -> None:
        additions = self._additions
        self._pace.answered(len(additions))
        problem = None if sent.cancelled() else sent.exception()
        refused = isinstance(problem, ServerError) or (problem is None and sent.result() < 0)
        if problem is None and not refused:
            for _, answer in additions:
                if not answer.done():  # a caller who was cancelled waits no more
                    answer.set_result(True)
            return
        alone = refused and len(additions) > 1
        for addition, answer in additions:
            if answer.done():
                continue
            if alone:
                self._send(summed([addition])).add_done_callback(partial(self._settle, answer))
            else:
                self._settle(answer, sent)
