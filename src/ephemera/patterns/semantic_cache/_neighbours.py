"""The semantic half: vectors of prompts, the answers of their neighbours, and orphans buried on sight.

Everything here may fail without harm. When the embedder or the vector database does, the cache goes on by
exact match alone, and nobody tries again for a few seconds. A neighbour counts only if its answer is alive in
Redis, in the very scope that was asked for, and passes the verifier; so a wrong or old vector costs time,
never truth.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ephemera.errors import EmbeddingFailed, VectorStoreUnavailable
from ephemera.patterns.embedders import Embedder
from ephemera.patterns.semantic_cache._entries import Entries, Kept
from ephemera.patterns.semantic_cache._scope import Identity
from ephemera.patterns.semantic_cache._tally import Counting
from ephemera.patterns.semantic_cache._vectors import Point, Vectors

if TYPE_CHECKING:
    from ephemera.patterns.semantic_cache._declaration import SemanticCache

V = TypeVar("V")

log = logging.getLogger("ephemera.semantic_cache")

_CANDIDATES = 4
_MOST_ROUNDS = 8  # searches of one call, each after orphans of the one before were buried
_REST = 5.0  # seconds without a search after one that failed
_REMEMBERED = 128  # prompts whose vectors a process keeps; some 32 kB each


class Neighbour(NamedTuple, Generic[V]):
    """The answer to a similar prompt; what a verifier is asked about."""

    id: str
    kept: Kept[V]
    similarity: float  # cosine, 1 for the same direction


class Neighbours(Generic[V]):
    """The neighbours of one cache in one store."""

    def __init__(
        self,
        declared: SemanticCache[V, Any],
        entries: Entries[V],
        counting: Counting,
        embedder: Embedder,
        vectors: Vectors,
    ) -> None:
        self._declared = declared
        self._entries = entries
        self._counting = counting
        self._vectors = vectors
        self._embeddings = Embeddings(embedder)
        self._model = embedder.model
        catalogue, pattern = declared.keyspace.catalogue, declared.keyspace.pattern
        self.prefix = f"{_plain(catalogue)}.{_plain(pattern)}.{_digest(catalogue, pattern)}."
        self._rests_until = 0.0

    async def find(self, prompt: str, identity: Identity, scope: Any) -> Neighbour[V] | None:
        """The nearest answer that may be given, if there is one."""
        refused: set[str] = set()
        try:
            vector = await self._vector(prompt)
            for _ in range(_MOST_ROUNDS):
                if vector is None:
                    break
                found, buried = await self._search(prompt, vector, identity, scope, refused)
                if found is not None or not buried:
                    return found
        except (EmbeddingFailed, VectorStoreUnavailable) as problem:
            self._fail(problem)
        if self._rests():
            self._counting.add(without_vectors=1)
        return None

    async def keep(self, prompt: str, identity: Identity, sources: Iterable[str]) -> None:
        """Write the vector of an answer that is about to be stored."""
        try:
            vector = await self._vector(prompt)
            if vector is not None:
                point = Point(identity.id, secrets.token_hex(8), identity.scope, tuple(sorted(sources)))
                await self._vectors.keep(self._collection(vector), point, vector)
        except (EmbeddingFailed, VectorStoreUnavailable) as problem:
            self._fail(problem)

    async def close(self) -> None:
        """End what is being embedded."""
        await self._embeddings.close()

    async def _search(
        self, prompt: str, vector: list[float], identity: Identity, scope: Any, refused: set[str]
    ) -> tuple[Neighbour[V] | None, bool]:
        """The best neighbour; and whether orphans were buried, so that others may come to light."""
        collection = self._collection(vector)
        near = await self._vectors.nearest(
            collection, vector, identity.scope, at_least=self._declared.threshold, most=_CANDIDATES
        )
        found: Neighbour[V] | None = None
        buried: list[Point] = []
        for point, similarity in near:
            if point.id in refused:
                continue
            seen = await self._entries.read(point.id, scope.documents)
            if seen.kept is not None and seen.kept.scope == scope:
                neighbour = Neighbour(point.id, seen.kept, similarity)
                if await self._verified(prompt, neighbour):
                    found = neighbour
                    break
                refused.add(point.id)
            elif seen.dead and await self._entries.bury(point.id, seen):
                buried.append(point)
        try:
            await self._vectors.remove(collection, buried)
        except VectorStoreUnavailable as problem:
            if found is None:
                raise
            self._fail(problem)  # the orphans can wait, the answer is there
        return found, bool(buried)

    async def _verified(self, prompt: str, neighbour: Neighbour[V]) -> bool:
        verify = self._declared.verify
        if verify is None:
            return True
        try:
            good = await verify(prompt, neighbour)
        except Exception:
            log.warning("%r: the verifier failed, so a neighbour was refused", self._declared, exc_info=True)
            good = False
        if not good:
            self._counting.add(rejected=1)
        return good

    async def _vector(self, prompt: str) -> list[float] | None:
        """The prompt's vector; None when it has no direction, or while the semantic half rests."""
        if self._rests():
            return None
        vector = await self._embeddings.of(prompt)
        length = math.hypot(*vector)
        return vector if 0.0 < length < math.inf else None

    def _collection(self, vector: list[float]) -> str:
        """One for each model and length: vectors of different models have nothing to do with each other."""
        return f"{self.prefix}{_plain(self._model)}.{_digest(self._model)}.{len(vector)}"

    def _rests(self) -> bool:
        return monotonic() < self._rests_until

    def _fail(self, problem: Exception) -> None:
        self._rests_until = monotonic() + _REST
        log.warning("%r goes on by exact match alone for %g s: %s", self._declared, _REST, problem)


class Embeddings:
    """Vectors of prompts: those asked for at once are made once, and the last ones are remembered."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._made: OrderedDict[str, asyncio.Task[list[float]]] = OrderedDict()

    async def of(self, text: str) -> list[float]:
        """The vector of a text; `EmbeddingFailed`, whatever the embedder raises."""
        task = self._made.get(text)
        if task is None:
            task = self._made[text] = asyncio.create_task(self._make(text))
            task.add_done_callback(lambda done: self._forget_failed(text, done))
            if len(self._made) > _REMEMBERED:
                self._made.popitem(last=False)
        else:
            self._made.move_to_end(text)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End what is under way."""
        tasks = [task for task in self._made.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _make(self, text: str) -> list[float]:
        try:
            [vector] = await self._embedder.embed([text])
        except EmbeddingFailed:
            raise
        except Exception as problem:
            raise EmbeddingFailed(self._embedder.model, f"{type(problem).__name__}: {problem}") from problem
        return vector

    def _forget_failed(self, text: str, task: asyncio.Task[list[float]]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if failed and self._made.get(text) is task:
            del self._made[text]


def _digest(*texts: str) -> str:
    """What tells two names apart that are plainly the same."""
    return sha256("\n".join(texts).encode()).hexdigest()[:8]


def _plain(text: str) -> str:
    """A name that any vector database takes."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()
