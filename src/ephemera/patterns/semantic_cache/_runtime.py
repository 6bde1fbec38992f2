"""The semantic cache of one store: exact match, then neighbours, then one ask for all who wait."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from ephemera.errors import VectorStoreUnavailable
from ephemera.keyspace import REDIS_ERRORS, Stats, Store
from ephemera.patterns.embedders import Embedder
from ephemera.patterns.semantic_cache._entries import NOTHING, Entries
from ephemera.patterns.semantic_cache._neighbours import Neighbours
from ephemera.patterns.semantic_cache._scope import Identity, Scope
from ephemera.patterns.semantic_cache._shadow import Shadowing
from ephemera.patterns.semantic_cache._sweeper import Sweeping, Swept
from ephemera.patterns.semantic_cache._tally import Counting, Hits, Tally
from ephemera.patterns.semantic_cache._vectors import Vectors

if TYPE_CHECKING:
    from ephemera.patterns.semantic_cache._declaration import SemanticCache

V = TypeVar("V")
S = TypeVar("S", bound=Scope)
How: TypeAlias = Literal["exact", "semantic", "asked"]

log = logging.getLogger("ephemera.semantic_cache")


@dataclass(frozen=True, slots=True)
class Answer(Generic[V]):
    """An answer, and where it came from.

    `exact`: it was given to this very prompt before, or just now to another caller; `semantic`: to a similar
    one, `prompt`; `asked`: the model was asked for it. `id` is what `report_bad_hit` takes.
    """

    value: V
    how: How
    id: str
    prompt: str
    similarity: float = 1.0  # cosine


class BoundSemanticCache(Generic[V, S]):
    """What `store[OUTLINES]` gives."""

    def __init__(
        self, declared: SemanticCache[V, S], store: Store, embedder: Embedder, vectors: Vectors
    ) -> None:
        self._declared = declared
        self._client = store.client("cache")
        self.stats: Stats = store[declared.keyspace].stats
        self._cache = store[declared.cache]
        self._entries: Entries[V] = Entries(declared, store)
        self._counting = Counting(declared, store)
        self._neighbours: Neighbours[V] = Neighbours(
            declared, self._entries, self._counting, embedder, vectors
        )
        self._sweeping = Sweeping(declared, store, self._entries, vectors, self._neighbours.prefix)
        seconds = declared.hard_timeout.total_seconds()
        self._shadowing: Shadowing[V] = Shadowing(declared.shadow, self._counting, self._evict, seconds)

    async def get_or_ask(self, prompt: str, scope: S, ask: Callable[[str], Awaitable[V]]) -> Answer[V]:
        """The answer to this prompt or to a similar one in the same scope, or else `await ask(prompt)`."""
        scope, identity = self._identified(prompt, scope)
        try:
            found = await self._find(prompt, identity, scope)
        except REDIS_ERRORS:
            self.stats.errors += 1
            found = None
        if found is None:
            return await self._ask(prompt, identity, scope, ask)
        if found.how == "semantic":
            self._shadowing.consider(found.id, found.value, lambda: ask(prompt))
        return found

    async def find(self, prompt: str, scope: S) -> Answer[V] | None:
        """The answer to this prompt or to a similar one, or None; nobody is asked."""
        scope, identity = self._identified(prompt, scope)
        found = await self._find(prompt, identity, scope)
        self.stats.misses += found is None
        return found

    async def delete(self, prompt: str, scope: S) -> bool:
        """Forget the answer to a prompt; what is being asked for will not be stored."""
        return await self._evict(self._identified(prompt, scope)[1].id)

    async def report_bad_hit(self, answer_id: str) -> bool:
        """Forget a wrong answer, by `Answer.id`, so that nobody gets it again; False when it was gone."""
        evicted = await self._evict(answer_id)
        if evicted:
            self._counting.add(reported=1)
        return evicted

    async def end_source(self, source: str) -> int:
        """Forget every answer that rests on this; how many are gone at once. None of the others is served."""
        await self._cache.invalidate_tag(source)
        try:
            return (await self._sweeping.sweep(source)).removed
        except VectorStoreUnavailable as problem:
            log.warning("%r: what rests on %r is over, and swept later: %s", self._declared, source, problem)
            return 0

    async def sweep(self) -> Swept:
        """Remove the vectors of answers that are over."""
        return await self._sweeping.sweep()

    async def hits(self, answer_id: str) -> Hits:
        """How often an answer was used, by `Answer.id`."""
        return await self._counting.hits_of(answer_id)

    async def tally(self, days: int = 1) -> Tally:
        """What all processes did in the last so many days, today included."""
        return await self._counting.tally_of(days)

    async def close(self) -> None:
        """End what is under way in the background; the store does this when it closes."""
        await self._sweeping.close()
        await self._shadowing.close()
        await self._neighbours.close()
        await self._counting.settle()

    def _identified(self, prompt: str, scope: S) -> tuple[S, Identity]:
        scope = self._declared.identities.checked(scope)
        return scope, self._declared.identities.of(prompt, scope)

    async def _find(self, prompt: str, identity: Identity, scope: S) -> Answer[V] | None:
        seen = await self._entries.read(identity.id, scope.documents)
        if seen.kept is not None:
            self._count("exact", identity.id, seen.kept.tokens)
            return Answer(seen.kept.answer, "exact", identity.id, prompt)
        near = await self._neighbours.find(prompt, identity, scope)
        if near is None:
            return None
        # Itself is among its neighbours when it was kept after the look above.
        how: How = "exact" if near.id == identity.id else "semantic"
        self._count(how, near.id, near.kept.tokens)
        return Answer(near.kept.answer, how, near.id, near.kept.prompt, near.similarity)

    async def _ask(
        self, prompt: str, identity: Identity, scope: S, ask: Callable[[str], Awaitable[V]]
    ) -> Answer[V]:
        asked = False

        async def load(**_: Any) -> Any:
            nonlocal asked
            asked = True
            value = await ask(prompt)
            self._counting.add(asked=1)
            tokens = 0 if self._declared.tokens is None else self._declared.tokens(value)
            kept = self._declared.kept(prompt, scope, tokens, value)
            if self._client.up:
                # Before the entry: whoever meets the vector first sees that its entry is on its way.
                await self._neighbours.keep(prompt, identity, self._declared.sources_of(kept))
                self._sweeping.start()
            return kept

        kept = await self._cache.get_or_load(load, **{self._declared.field: identity.id})
        if asked:
            return Answer(kept.answer, "asked", identity.id, prompt)
        self._counting.hit(identity.id, "exact", kept.tokens)
        return Answer(kept.answer, "exact", identity.id, prompt)

    def _count(self, how: How, answer_id: str, tokens: int) -> None:
        self.stats.hits += 1
        self._counting.hit(answer_id, how, tokens)

    async def _evict(self, answer_id: str) -> bool:
        evicted = await self._cache.delete(**{self._declared.field: answer_id})
        await self._entries.bury(answer_id, NOTHING)
        try:
            await self._sweeping.remove(answer_id)
        except VectorStoreUnavailable as problem:
            log.warning("%r: an evicted answer's vector is swept later: %s", self._declared, problem)
        return evicted
