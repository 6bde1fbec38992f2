"""Shadow sampling: check some semantic hits by asking the model, to learn how many are wrong."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import REDIS_ERRORS
from ephemera.patterns.semantic_cache._counters import Counters

V = TypeVar("V")

log = logging.getLogger("ephemera.semantic_cache")


@dataclass(frozen=True, kw_only=True)
class Shadow(Generic[V]):
    """The option `MatchPolicy(shadow=Shadow(...))`: which semantic hits are checked, and by whom."""

    judge: Callable[[V, V], Awaitable[bool]]
    """`await judge(served, asked)` says whether the served answer was as good as the asked one."""
    share: float = 0.01
    """The share of semantic hits that are checked."""
    max_concurrent: int = 2
    """Checks that run at once in a process; hits beyond that are not sampled."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or self.max_concurrent < 1:
            raise InvalidDeclaration(
                "Shadow",
                f"share={self.share}, max_concurrent={self.max_concurrent} samples nothing",
                "give a share above 0, at most 1, and at least one at once",
            )


class ShadowSampler(Generic[V]):
    """The samples of one cache on one store."""

    def __init__(
        self,
        shadow: Shadow[V] | None,
        counters: Counters,
        evict: Callable[[str], Awaitable[Any]],
        timeout: float,
    ) -> None:
        self._shadow = shadow
        self._counters = counters
        self._evict = evict
        self._timeout = timeout
        self._tasks: set[asyncio.Task[None]] = set()

    def sample(self, answer_id: str, served: V, ask: Callable[[], Awaitable[V]]) -> None:
        """Check this hit in the background, or not."""
        shadow = self._shadow
        if shadow is None or len(self._tasks) >= shadow.max_concurrent or random.random() >= shadow.share:
            return
        task = asyncio.create_task(self._compare(shadow, answer_id, served, ask))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _compare(
        self, shadow: Shadow[V], answer_id: str, served: V, ask: Callable[[], Awaitable[V]]
    ) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                good = await shadow.judge(served, await ask())
        except Exception:
            log.warning("a sampled semantic hit could not be judged", exc_info=True)
            return
        self._counters.add(judged=1, false_hits=0 if good else 1)
        if good:
            return
        try:
            await self._evict(answer_id)
        except REDIS_ERRORS as problem:
            log.warning("a false hit could not be evicted: %s", problem)
