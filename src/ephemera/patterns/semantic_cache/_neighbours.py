"""Neighbours: vectors of prompts, the answers to similar prompts, and orphaned vectors removed when found.

Everything here may fail without harm. When the embedder or the vector store does, the cache works by exact
match alone, and this process does not try again for a few seconds. A neighbour counts only if its answer is
valid in Redis, in exactly the scope that was asked for, and passes the guard and the verifier; so a wrong or
old vector costs time, never correctness.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ephemera._futures import cancel_all
from ephemera.errors import EmbeddingFailed, StoreClosed, VectorStoreUnavailable
from ephemera.keyspace import REDIS_ERRORS, Store
from ephemera.patterns.embedders import Embedder
from ephemera.patterns.semantic_cache._answers import AnswerStore, Counters, PromptId, StoredAnswer
from ephemera.patterns.semantic_cache._guard import prompt_difference
from ephemera.patterns.semantic_cache._vector_stores import Point, VectorStore

if TYPE_CHECKING:
    from ephemera.patterns.semantic_cache._declaration import SemanticCache

V = TypeVar("V")

log = logging.getLogger("ephemera.semantic_cache")

_CANDIDATES = 8
_LONGEST = 8000  # characters of a prompt; embedders see less of it, so longer ones are matched exactly
_MAX_ROUNDS = 8  # searches of one call, each after orphans of the one before were removed
_BACKOFF = 5.0  # seconds without a search after one that failed
_MAX_REMEMBERED = 128  # prompts whose vectors a process keeps; about 32 kB each


class Neighbour(NamedTuple, Generic[V]):
    """The answer to a similar prompt, as a verifier gets it."""

    id: str
    stored: StoredAnswer[V]
    similarity: float  # cosine, 1 for the same direction


class NeighbourSearch(Generic[V]):
    """The neighbours of one cache on one store."""

    def __init__(
        self,
        declared: SemanticCache[V, Any],
        answers: AnswerStore[V],
        counters: Counters,
        embedder: Embedder,
        vectors: VectorStore,
    ) -> None:
        self._declared = declared
        self._answers = answers
        self._counters = counters
        self._vectors = vectors
        self._embeddings = PromptEmbeddings(embedder)
        self._model = embedder.model
        catalogue, pattern = declared.keyspace.catalogue, declared.keyspace.pattern
        self.prefix = f"{_plain(catalogue)}.{_plain(pattern)}.{_digest(catalogue, pattern)}."
        """What the names of the cache's collections begin with."""
        self._backs_off_until = 0.0
        self._difference = prompt_difference

    async def find(self, prompt: str, prompt_id: PromptId, scope: Any) -> Neighbour[V] | None:
        """Return the nearest answer that may be used, if there is one."""
        refused: set[str] = set()
        try:
            vector = await self._vector(prompt)
            for _ in range(_MAX_ROUNDS):
                if vector is None:
                    break
                found, removed = await self._search(prompt, vector, prompt_id, scope, refused)
                if found is not None or not removed:
                    return found
        except (EmbeddingFailed, VectorStoreUnavailable) as problem:
            self._back_off(problem)
        if self._is_backing_off():
            self._counters.add(without_vectors=1)
        return None

    async def add(self, prompt: str, prompt_id: PromptId, sources: Iterable[str]) -> None:
        """Write the vector of an answer that is about to be stored."""
        try:
            vector = await self._vector(prompt)
            if vector is not None:
                point = Point(prompt_id.id, secrets.token_hex(8), prompt_id.scope, tuple(sorted(sources)))
                await self._vectors.upsert(self._collection(vector), point, vector)
        except (EmbeddingFailed, VectorStoreUnavailable) as problem:
            self._back_off(problem)

    async def close(self) -> None:
        """Cancel what is being embedded."""
        await self._embeddings.close()

    async def _search(
        self, prompt: str, vector: list[float], prompt_id: PromptId, scope: Any, refused: set[str]
    ) -> tuple[Neighbour[V] | None, bool]:
        """Return the best neighbour; and whether orphans were removed, so that others may be found."""
        collection = self._collection(vector)
        near = await self._vectors.search(
            collection,
            vector,
            prompt_id.scope,
            min_similarity=self._declared.match_policy.threshold,
            limit=_CANDIDATES,
        )
        found: Neighbour[V] | None = None
        orphans: list[Point] = []
        for point, similarity in near:
            if point.id in refused:
                continue
            stored = await self._answers.read(point.id, scope.documents)
            if stored.value is not None and stored.value.scope == scope:
                neighbour = Neighbour(point.id, stored.value, similarity)
                if self._passes_guard(prompt, neighbour) and await self._is_verified(prompt, neighbour):
                    found = neighbour
                    break
                refused.add(point.id)
            elif stored.is_dead and await self._answers.remove(point.id, stored.data):
                orphans.append(point)
        try:
            await self._vectors.delete(collection, orphans)
        except VectorStoreUnavailable as problem:
            if found is None:
                raise
            self._back_off(problem)  # the orphans can wait, the answer is there
        return found, bool(orphans)

    def _passes_guard(self, prompt: str, neighbour: Neighbour[V]) -> bool:
        differs = self._difference(prompt, neighbour.stored.prompt)
        if differs is not None:
            self._counters.add(guarded=1)
        return differs is None

    async def _is_verified(self, prompt: str, neighbour: Neighbour[V]) -> bool:
        verify = self._declared.match_policy.verify
        if verify is None:
            return True
        try:
            good = await verify(prompt, neighbour)
        except Exception:
            log.warning("%r: the verifier failed, so a neighbour was refused", self._declared, exc_info=True)
            good = False
        if not good:
            self._counters.add(rejected=1)
        return good

    async def _vector(self, prompt: str) -> list[float] | None:
        """Return the prompt's vector; None when it has no direction or is long, or searches back off."""
        if self._is_backing_off() or len(prompt) > _LONGEST:
            return None
        vector = await self._embeddings.of(prompt)
        length = math.hypot(*vector)
        return vector if 0.0 < length < math.inf else None

    def _collection(self, vector: list[float]) -> str:
        """Name the collection of a model and length: vectors of different models cannot be compared."""
        return f"{self.prefix}{_plain(self._model)}.{_digest(self._model)}.{len(vector)}"

    def _is_backing_off(self) -> bool:
        return monotonic() < self._backs_off_until

    def _back_off(self, problem: Exception) -> None:
        self._backs_off_until = monotonic() + _BACKOFF
        log.warning("%r works by exact match alone for %g s: %s", self._declared, _BACKOFF, problem)


class PromptEmbeddings:
    """Vectors of prompts: concurrent requests for one prompt share a call, and the last ones are kept."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._tasks: OrderedDict[str, asyncio.Task[list[float]]] = OrderedDict()

    async def of(self, text: str) -> list[float]:
        """Return the vector of a text; `EmbeddingFailed`, whatever the embedder raises; `StoreClosed`."""
        task = self._tasks.get(text)
        if task is None:
            task = self._tasks[text] = asyncio.create_task(self._embed(text))
            task.add_done_callback(lambda done: self._forget_failed(text, done))
            if len(self._tasks) > _MAX_REMEMBERED:
                self._tasks.popitem(last=False)
        else:
            self._tasks.move_to_end(text)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise StoreClosed("the store was closed while a prompt was embedded") from None
            raise

    async def close(self) -> None:
        """Cancel what is under way; callers that wait for it get `StoreClosed`."""
        tasks = [task for task in self._tasks.values() if not task.done()]
        await cancel_all(tasks)

    async def _embed(self, text: str) -> list[float]:
        try:
            [vector] = await self._embedder.embed([text])
        except EmbeddingFailed:
            raise
        except Exception as problem:
            raise EmbeddingFailed(self._embedder.model, f"{type(problem).__name__}: {problem}") from problem
        return vector

    def _forget_failed(self, text: str, task: asyncio.Task[list[float]]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if failed and self._tasks.get(text) is task:
            del self._tasks[text]


def _digest(*texts: str) -> str:
    """Distinguish names that `_plain` makes equal."""
    return sha256("\n".join(texts).encode()).hexdigest()[:8]


def _plain(text: str) -> str:
    """Return a name that any vector store accepts."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()


class SweepReport(NamedTuple):
    """The result of a sweep: vectors that were checked, and those of dead answers, which were removed."""

    checked: int
    removed: int


class Sweeper:
    """Removes vectors whose answers are dead, of one cache on one store, even those that no search finds.

    A sweep goes through all vectors of a cache, of every embedding model it has used, page by page, and
    removes what is dead. It can be interrupted and repeated. In the background it runs every
    `sweep_every` from the first write on; where processes share a vector store, one of them each time.
    """

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
            await cancel_all([self._task])

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
