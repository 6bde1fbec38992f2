"""Sweeping: vectors whose answers are over are found and removed, also those that nobody comes near.

A sweep goes through all vectors of a cache, of every embedding model it has had, page by page, and buries
what is dead. It can be broken off and repeated at will. In the background it runs each `sweep_every` from the
first write on; where processes share a vector database, one of them each time.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from ephemera.errors import VectorStoreUnavailable
from ephemera.keyspace import REDIS_ERRORS, Store
from ephemera.patterns.semantic_cache._entries import Entries
from ephemera.patterns.semantic_cache._vectors import Point, Vectors

if TYPE_CHECKING:
    from ephemera.patterns.semantic_cache._declaration import SemanticCache

log = logging.getLogger("ephemera.semantic_cache")


class Swept(NamedTuple):
    """What a sweep found: vectors it looked at, and those of dead answers, which it removed."""

    looked_at: int
    removed: int


class Sweeping:
    """The sweeps of one cache in one store."""

    def __init__(
        self,
        declared: SemanticCache[Any, Any],
        store: Store,
        entries: Entries[Any],
        vectors: Vectors,
        prefix: str,
    ) -> None:
        self._declared = declared
        self._entries = entries
        self._vectors = vectors
        self._prefix = prefix
        self._turns = store[declared.turns]
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def sweep(self, source: str | None = None) -> Swept:
        """Go through the vectors, or those whose answers rest on a source, and bury what is dead."""
        looked_at = removed = 0
        for collection in await self._vectors.collections(self._prefix):
            begin: str | None = None
            while True:
                points, begin = await self._vectors.page(collection, begin, source=source)
                dead = await self._buried(points)
                await self._vectors.remove(collection, dead)
                looked_at += len(points)
                removed += len(dead)
                if begin is None:
                    break
        return Swept(looked_at, removed)

    async def remove(self, answer_id: str) -> None:
        """Remove the vectors that an evicted answer had, of any model."""
        for collection in await self._vectors.collections(self._prefix):
            point = await self._vectors.get(collection, answer_id)
            if point is not None:
                await self._vectors.remove(collection, await self._buried([point]))

    def start(self) -> None:
        """Have the background sweep run, if it does not."""
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._keep_sweeping())

    async def close(self) -> None:
        """End the background sweep."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _buried(self, points: list[Point]) -> list[Point]:
        """Those of the points whose answers are over, once what was left of these is gone."""
        each = await asyncio.gather(*(self._is_buried(point) for point in points))
        return [point for point, buried in zip(points, each, strict=True) if buried]

    async def _is_buried(self, point: Point) -> bool:
        seen = await self._entries.read(point.id)
        return seen.dead and await self._entries.bury(point.id, seen)

    async def _keep_sweeping(self) -> None:
        every = self._declared.sweep_every.total_seconds()
        while True:
            await asyncio.sleep(every * random.uniform(0.9, 1.1))
            try:
                if not self._vectors.shared or await self._turns.set_if_absent():
                    await self.sweep()
            except (*REDIS_ERRORS, VectorStoreUnavailable) as problem:
                log.warning("%r could not be swept, and will be later: %s", self._declared, problem)
