"""Additions of one loop tick leave as one: amounts to the same counter are summed before they are sent.

Tasks that count at the same moment share a script call a shard, and each is answered when its amount is on
the server, as if it had called alone. Where many count all the time, half of them share a call: the server
adds up one half while the other is gathered (`Pace`). When the server refuses what was
gathered (no room for one of the counters, a sum beyond 2**53), nothing of it was added, and each addition is
made by itself: the one at fault fails, the others do not.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ephemera.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Answer: TypeAlias = asyncio.Future[bool]

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


def summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """What is added to each counter in all."""
    sums: dict[str, int] = {}
    for counter, amount in pairs:
        sums[counter] = sums.get(counter, 0) + amount
    return sums


class Gathering:
    """What this tick adds to one shard.

    `send` adds amounts, all of them or none, and `settle` passes on what came of it to one who waits.
    """

    __slots__ = ("_new_answer", "_pace", "_send", "_settle", "_sums", "additions")

    def __init__(
        self,
        pace: Pace,
        send: Callable[[dict[str, int]], asyncio.Future[int]],
        settle: Callable[[Answer, asyncio.Future[int]], None],
        additions: Sequence[tuple[Addition, Answer]] = (),
    ) -> None:
        self._pace = pace
        self._send = send
        self._settle = settle
        self._new_answer = asyncio.get_running_loop().create_future
        self.additions = list(additions)
        self._sums = summed(pair for addition, _ in additions for pair in addition)

    def add(self, addition: Addition) -> Answer:
        """The future of an addition."""
        sums = self._sums
        for counter, amount in addition:
            sums[counter] = sums.get(counter, 0) + amount
        answer: Answer = self._new_answer()
        self.additions.append((addition, answer))
        return answer

    def leave(self) -> None:
        """Send what was gathered; whoever waits is answered with the reply."""
        if len(self._sums) > _MOST and len(self.additions) > 1:
            half = len(self.additions) // 2
            for part in (self.additions[:half], self.additions[half:]):
                Gathering(self._pace, self._send, self._settle, part).leave()
        else:
            self._pace.left(len(self.additions))
            self._send(self._sums).add_done_callback(self._answer)

    def _answer(self, sent: asyncio.Future[int]) -> None:
        self._pace.answered(len(self.additions))
        problem = None if sent.cancelled() else sent.exception()
        refused = isinstance(problem, ServerError) or (problem is None and sent.result() < 0)
        if problem is None and not refused:
            for _, answer in self.additions:
                if not answer.done():  # its caller was cancelled
                    answer.set_result(True)
            return
        alone = refused and len(self.additions) > 1
        for addition, answer in self.additions:
            if answer.done():
                continue
            if alone:
                self._send(summed(addition)).add_done_callback(partial(self._settle, answer))
            else:
                self._settle(answer, sent)
