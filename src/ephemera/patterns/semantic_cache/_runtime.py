"""The semantic cache of one store: exact match, then neighbours if any, then one shared call of the model."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from ephemera.errors import VectorStoreUnavailable
from ephemera.keyspace import REDIS_ERRORS, Stats, Store
from ephemera.patterns.embedders import Embedder
from ephemera.patterns.semantic_cache._answers import (
    AnswerStore,
    Counters,
    Hits,
    PromptId,
    Scope,
    ShadowSampler,
    Tally,
)
from ephemera.patterns.semantic_cache._neighbours import NeighbourSearch, Sweeper, SweepReport
from ephemera.patterns.semantic_cache._vector_stores import VectorStore

if TYPE_CHECKING:
    from ephemera.patterns.semantic_cache._declaration import SemanticCache

V = TypeVar("V")
S = TypeVar("S", bound=Scope)
Origin: TypeAlias = Literal["exact", "semantic", "asked"]

log = logging.getLogger("ephemera.semantic_cache")


@dataclass(frozen=True, slots=True)
class Answer(Generic[V]):
    """An answer, and where it came from.

    `exact`: the same prompt was answered before, or just now for another caller; `semantic`: a similar one
    was, `prompt`; `asked`: the model was asked. `id` is what `report_bad_hit` takes.
    """

    value: V
    origin: Origin
    id: str
    prompt: str
    similarity: float = 1.0  # cosine


class BoundSemanticCache(Generic[V, S]):
    """The semantic cache of one store: `store[OUTLINES]`."""

    def __init__(
        self,
        declared: SemanticCache[V, S],
        store: Store,
        embedder: Embedder | None = None,
        vectors: VectorStore | None = None,
    ) -> None:
        """Bind a cache, which matches exactly unless it has an embedder and vectors."""
        self._declared = declared
        self._client = store.client("cache")
        self.stats: Stats = store[declared.keyspace].stats
        self._cache = store[declared.cache]
        self._answers: AnswerStore[V] = AnswerStore(declared, store)
        self._counters = Counters(declared, store)
        self._neighbours: NeighbourSearch[V] | None = None
        self._sweeper: Sweeper | None = None
        if embedder is not None and vectors is not None:
            self._neighbours = NeighbourSearch(declared, self._answers, self._counters, embedder, vectors)
            self._sweeper = Sweeper(declared, store, self._answers, vectors, self._neighbours.prefix)
        timeout = declared.model_calls.timeout.total_seconds()
        self._shadow: ShadowSampler[V] = ShadowSampler(
            declared.match_policy.shadow, self._counters, self._evict, timeout
        )
        store.before_close(self._close)

    async def get_or_ask(self, prompt: str, scope: S, ask: Callable[[str], Awaitable[V]]) -> Answer[V]:
        """Return the answer to this prompt or to a similar one in the same scope, or `await ask(prompt)`."""
        scope, prompt_id = self._identified(prompt, scope)
        try:
            with self.stats.counting_errors:
                found = await self._find(prompt, prompt_id, scope)
        except REDIS_ERRORS:
            found = None
        if found is None:
            return await self._ask(prompt, prompt_id, scope, ask)
        if found.origin == "semantic":
            self._shadow.sample(found.id, found.value, lambda: ask(prompt))
        return found

    async def find(self, prompt: str, scope: S) -> Answer[V] | None:
        """Return the answer to this prompt or to a similar one, or None; the model is not asked."""
        scope, prompt_id = self._identified(prompt, scope)
        found = await self._find(prompt, prompt_id, scope)
        self.stats.misses += found is None
        return found

    async def put(self, prompt: str, scope: S, value: V) -> None:
        """Store the answer of a model that was asked elsewhere, in place of an earlier one."""
        scope, prompt_id = self._identified(prompt, scope)
        answer = self._made(prompt, scope, value)
        await self._cache.put(answer, **{self._declared.field: prompt_id.id})
        await self._add_vector(prompt, prompt_id, answer)

    async def delete(self, prompt: str, scope: S) -> bool:
        """Remove the answer to a prompt; one that is being asked for is not stored."""
        return await self._evict(self._identified(prompt, scope)[1].id)

    async def report_bad_hit(self, answer_id: str) -> bool:
        """Remove a wrong answer, by `Answer.id`, so that it is not returned again; False when it was gone."""
        evicted = await self._evict(answer_id)
        if evicted:
            self._counters.add(reported=1)
        return evicted

    async def invalidate_source(self, source: str) -> int:
        """Invalidate every answer that is based on this; returns how many were removed at once."""
        await self._cache.invalidate_tag(source)
        if self._sweeper is None:
            return 0
        try:
            return (await self._sweeper.sweep(source)).removed
        except VectorStoreUnavailable as problem:
            log.warning("%r: answers based on %r are swept later: %s", self._declared, source, problem)
            return 0

    async def sweep(self) -> SweepReport:
        """Remove the vectors of dead answers."""
        return SweepReport(0, 0) if self._sweeper is None else await self._sweeper.sweep()

    async def hits(self, answer_id: str) -> Hits:
        """Return how often an answer was used, by `Answer.id`."""
        return await self._counters.hits_of(answer_id)

    async def tally(self, days: int = 1) -> Tally:
        """Return what all processes did in the last `days` days, today included."""
        return await self._counters.tally_of(days)

    def _identified(self, prompt: str, scope: S) -> tuple[S, PromptId]:
        scope = self._declared.prompt_ids.checked(scope)
        return scope, self._declared.prompt_ids.of(prompt, scope)

    async def _find(self, prompt: str, prompt_id: PromptId, scope: S) -> Answer[V] | None:
        stored = (await self._answers.read(prompt_id.id, scope.documents)).value
        if stored is not None:
            self._count("exact", prompt_id.id, stored.tokens)
            return Answer(stored.answer, "exact", prompt_id.id, prompt)
        near = None if self._neighbours is None else await self._neighbours.find(prompt, prompt_id, scope)
        if near is None:
            return None
        # A prompt is its own neighbour when it was stored after the read above.
        origin: Origin = "exact" if near.id == prompt_id.id else "semantic"
        self._count(origin, near.id, near.stored.tokens)
        return Answer(near.stored.answer, origin, near.id, near.stored.prompt, near.similarity)

    async def _ask(
        self, prompt: str, prompt_id: PromptId, scope: S, ask: Callable[[str], Awaitable[V]]
    ) -> Answer[V]:
        asked = False

        async def load(**_: Any) -> Any:
            nonlocal asked
            asked = True
            value = await ask(prompt)
            self._counters.add(asked=1)
            answer = self._made(prompt, scope, value)
            # Before the entry: a process that finds the vector first sees that its entry is being stored.
            await self._add_vector(prompt, prompt_id, answer)
            return answer

        answer = await self._cache.get_or_load(load, **{self._declared.field: prompt_id.id})
        if asked:
            return Answer(answer.answer, "asked", prompt_id.id, prompt)
        self._counters.count_hit(prompt_id.id, "exact", answer.tokens)
        return Answer(answer.answer, "exact", prompt_id.id, prompt)

    def _made(self, prompt: str, scope: S, value: V) -> Any:
        tokens = 0 if self._declared.tokens is None else self._declared.tokens(value)
        return self._declared.answer_type(prompt, scope, tokens, value)

    async def _add_vector(self, prompt: str, prompt_id: PromptId, answer: Any) -> None:
        if self._neighbours is not None and self._sweeper is not None and self._client.up:
            await self._neighbours.add(prompt, prompt_id, self._declared._sources_of(answer))
            self._sweeper.start()

    def _count(self, origin: Origin, answer_id: str, tokens: int) -> None:
        self.stats.hits += 1
        self._counters.count_hit(answer_id, origin, tokens)

    async def _evict(self, answer_id: str) -> bool:
        evicted = await self._cache.delete(**{self._declared.field: answer_id})
        await self._answers.remove(answer_id)
        try:
            if self._sweeper is not None:
                await self._sweeper.delete(answer_id)
        except VectorStoreUnavailable as problem:
            log.warning("%r: the vector of an evicted answer is swept later: %s", self._declared, problem)
        return evicted

    async def _close(self) -> None:
        for part in (self._sweeper, self._shadow, self._neighbours):
            if part is not None:
                await part.close()
        await self._counters.flush()
