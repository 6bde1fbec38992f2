"""The sweeper removes vectors whose answers are dead, also those that no search finds.

A sweep goes through all vectors of a cache, of every embedding model it has used, page by page, and removes
what is dead. It can be interrupted and repeated at will. In the background it runs every `sweep_every` from
the first write on; where processes share a vector store, one of them each time.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from ephemera.errors import VectorStoreUnavailable
from ephemera.keyspace import REDIS_ERRORS, Store
from ephemera.patterns.semantic_cache._entries import AnswerStore
from ephemera.patterns.semantic_cache._vector_stores import Point, VectorStore

if TYPE_CHECKING:
    from ephemera.patterns.semantic_cache._declaration import SemanticCache

log = logging.getLogger("ephemera.semantic_cache")


class SweepReport(NamedTuple):
    """The result of a sweep: vectors that were checked, and those of dead answers, which were removed."""

    checked: int
    removed: int


class Sweeper:
    """The sweeps of one cache on one store."""

    def __init__(
        self,
        declared: SemanticCache[Any, Any],
        store: Store,
        answers: AnswerStore[Any],
        vectors: VectorStore,
        prefix: str,
    ) -> None:
        self._declared = declared
        self._answers = answers
        self._vectors = vectors
        self._prefix = prefix
        self._swept = store[declared.swept]
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def sweep(self, source: str | None = None) -> SweepReport:
        """Go through the vectors, or those whose answers are based on a source, and remove dead ones."""
        checked = removed = 0
        for collection in await self._vectors.collections(self._prefix):
            offset: str | None = None
            while True:
                points, offset = await self._vectors.scroll(collection, offset, source=source)
                dead = await self._remove_dead(points)
                await self._vectors.delete(collection, dead)
                checked += len(points)
                removed += len(dead)
                if offset is None:
                    break
        return SweepReport(checked, removed)

    async def delete(self, answer_id: str) -> None:
        """Delete the vectors of an evicted answer, of any model."""
        for collection in await self._vectors.collections(self._prefix):
            point = await self._vectors.get(collection, answer_id)
            if point is not None:
                await self._vectors.delete(collection, await self._remove_dead([point]))

    def start(self) -> None:
        """Start the background sweep, if it does not run."""
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._keep_sweeping())

    async def close(self) -> None:
        """Stop the background sweep."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _remove_dead(self, points: list[Point]) -> list[Point]:
        """Return the points whose answers are dead, once what was left of those in Redis is removed."""
        removed = await asyncio.gather(*(self._is_dead_and_removed(point) for point in points))
        return [point for point, is_removed in zip(points, removed, strict=True) if is_removed]

    async def _is_dead_and_removed(self, point: Point) -> bool:
        stored = await self._answers.read(point.id)
        return stored.is_dead and await self._answers.remove(point.id, stored.data)

    async def _keep_sweeping(self) -> None:
        every = self._declared.sweep_every.total_seconds()
        while True:
            await asyncio.sleep(every * random.uniform(0.9, 1.1))
            try:
                if not self._vectors.shared or await self._swept.set_if_absent():
                    await self.sweep()
            except (*REDIS_ERRORS, VectorStoreUnavailable) as problem:
                log.warning("%r: the sweep failed, and is repeated later: %s", self._declared, problem)
