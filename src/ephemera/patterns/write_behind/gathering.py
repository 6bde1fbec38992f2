"""Additions of one loop tick leave as one: amounts to the same counter are summed before they are sent.

Tasks that count at the same moment share a script call a shard, some hundred of them one each, and each is
answered when its amount is on the server, as if it had called alone. When the server refuses what was
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

    __slots__ = ("_new_answer", "_send", "_settle", "_sums", "additions")

    def __init__(
        self,
        send: Callable[[dict[str, int]], asyncio.Future[int]],
        settle: Callable[[Answer, asyncio.Future[int]], None],
        additions: Sequence[tuple[Addition, Answer]] = (),
    ) -> None:
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
                Gathering(self._send, self._settle, part).leave()
        else:
            self._send(self._sums).add_done_callback(self._answer)

    def _answer(self, sent: asyncio.Future[int]) -> None:
        problem = None if sent.cancelled() else sent.exception()
        refused = isinstance(problem, ServerError) or (problem is None and sent.result() < 0)
        alone = refused and len(self.additions) > 1
        for addition, answer in self.additions:
            if answer.done():
                continue  # its caller was cancelled
            if alone:
                self._send(summed(addition)).add_done_callback(partial(self._settle, answer))
            elif problem is None and not refused:
                answer.set_result(True)
            else:
                self._settle(answer, sent)
