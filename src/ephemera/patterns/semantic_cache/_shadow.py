"""Shadow sampling: some semantic hits are also asked for, in the background, to learn how many are wrong."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import REDIS_ERRORS
from ephemera.patterns.semantic_cache._tally import Counting

V = TypeVar("V")

log = logging.getLogger("ephemera.semantic_cache")


@dataclass(frozen=True, kw_only=True)
class Shadow(Generic[V]):
    """Of semantic hits, the `share` that is also asked for, and who judges: `await judge(served, asked)`.

    The judge says whether the served answer was as good as the asked one. A process asks for at most
    `at_once` in the background at a time; hits beyond that are not sampled.
    """

    judge: Callable[[V, V], Awaitable[bool]]
    share: float = 0.01
    at_once: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or self.at_once < 1:
            raise InvalidDeclaration(
                "Shadow",
                f"share={self.share}, at_once={self.at_once} samples nothing",
                "give a share above 0, at most 1, and at least one at once",
            )


class Shadowing(Generic[V]):
    """The samples of one cache in one store."""

    def __init__(
        self,
        shadow: Shadow[V] | None,
        counting: Counting,
        evict: Callable[[str], Awaitable[Any]],
        seconds: float,
    ) -> None:
        self._shadow = shadow
        self._counting = counting
        self._evict = evict
        self._seconds = seconds
        self._tasks: set[asyncio.Task[None]] = set()

    def consider(self, answer_id: str, served: V, ask: Callable[[], Awaitable[V]]) -> None:
        """Sample this hit, or not."""
        shadow = self._shadow
        if shadow is None or len(self._tasks) >= shadow.at_once or random.random() >= shadow.share:
            return
        task = asyncio.create_task(self._compare(shadow, answer_id, served, ask))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _compare(
        self, shadow: Shadow[V], answer_id: str, served: V, ask: Callable[[], Awaitable[V]]
    ) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                good = await shadow.judge(served, await ask())
        except Exception:
            log.warning("a semantic hit was sampled and could not be judged", exc_info=True)
            return
        self._counting.add(judged=1, false_hits=0 if good else 1)
        if good:
            return
        try:
            await self._evict(answer_id)
        except REDIS_ERRORS as problem:
            log.warning("a false hit could not be evicted: %s", problem)
