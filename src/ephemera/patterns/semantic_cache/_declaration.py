"""The declaration of a semantic cache: its answers, their counts, and what it is equipped with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Store, check_declaration, fixed
from ephemera.patterns.cache import Cache, Loading, Storage
from ephemera.patterns.embedders import Embedder, Lexical
from ephemera.patterns.semantic_cache._entries import kept_type
from ephemera.patterns.semantic_cache._neighbours import Neighbour
from ephemera.patterns.semantic_cache._qdrant import Qdrant
from ephemera.patterns.semantic_cache._runtime import BoundSemanticCache
from ephemera.patterns.semantic_cache._scope import Identities, Scope
from ephemera.patterns.semantic_cache._shadow import Shadow
from ephemera.patterns.semantic_cache._vectors import Vectors

V = TypeVar("V")
S = TypeVar("S", bound=Scope)


class SemanticCache(Generic[V, S]):
    """The declaration of a semantic cache: `store[OUTLINES]` gives the `BoundSemanticCache` of a store.

    `pattern` has one field, the id of a prompt in its scope. An answer lives for `lifetime`, which is fixed.
    A neighbour's answer is given from a cosine similarity of `threshold` on, if `await verify(prompt,
    neighbour)` agrees. `tokens` says what an answer cost; `sources` names what it rests on besides the
    documents of its scope. `shadow` samples semantic hits. A process asks at most `most_asks` times at once,
    also without Redis, and no ask may take longer than `hard_timeout`. `lease` is how long a dead asker is
    waited for. Vectors are swept each `sweep_every`.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        value_type: type[V],
        *,
        scope: type[S],
        lifetime: Fixed,
        threshold: float = 0.95,
        verify: Callable[[str, Neighbour[V]], Awaitable[bool]] | None = None,
        tokens: Callable[[V], int] | None = None,
        sources: Callable[[V], Iterable[str]] | None = None,
        shadow: Shadow[V] | None = None,
        most_asks: int = 8,
        hard_timeout: timedelta = timedelta(minutes=2),
        lease: timedelta = timedelta(seconds=2),
        sweep_every: timedelta = timedelta(minutes=15),
        compress_over: int | None = None,
        sensitive: bool = False,
        purpose: str,
        saves: str = "a call of the model",
        invalidated_by: tuple[str, ...] = ("a change of a source", "a reported bad hit"),
        if_lost: str = "the model is asked again",
    ) -> None:
        check_declaration(catalogue, pattern, hard_timeout=hard_timeout, lease=lease, sweep_every=sweep_every)
        _check(pattern, lifetime, threshold, sweep_every)
        self.identities = Identities(pattern, scope)
        self.threshold = threshold
        self.verify = verify
        self.tokens = tokens
        self.sources = sources
        self.shadow = shadow
        self.hard_timeout = hard_timeout
        self.sweep_every = sweep_every
        self.kept: Any = kept_type(scope, value_type)
        self.cache: Cache[Any] = Cache(
            catalogue,
            pattern,
            self.kept,
            fresh=timedelta(milliseconds=lifetime.milliseconds),
            loading=Loading(
                jitter=0,  # the lifetime is as declared, and answers do not come all at one moment
                early_refresh=0,  # a model is not asked for what it has answered already
                hard_timeout=hard_timeout,
                max_loads=most_asks,
                lease=lease,
            ),
            tags=lambda kept, **_: self.sources_of(kept),
            storage=Storage(compress_over=compress_over),
            sensitive=sensitive,
            purpose=purpose,
            saves=saves,
            invalidated_by=invalidated_by,
            if_lost=if_lost,
        )
        self.keyspace = self.cache.keyspace
        if len(self.keyspace.template.fields) != 1:
            raise InvalidDeclaration(pattern, "it needs one field, the id", "write it as 'answers:{id}'")
        (self.field,) = self.keyspace.template.fields
        self._declare_companions(catalogue, pattern, lifetime)

    def _declare_companions(self, catalogue: Catalogue, pattern: str, lifetime: Fixed) -> None:
        name = pattern.replace("{", "").replace("}", "")
        self.hits = catalogue.mapping(
            f"hits:{pattern}",
            int,
            lifetime=lifetime,
            purpose="How often an answer was used, and the tokens that saved",
            invalidated_by=("the end of its answer",),
            if_lost="counting begins anew",
            hash_tag=self.field,
        )
        self.tally = catalogue.mapping(
            f"tally:{name}:{{day}}",
            int,
            lifetime=fixed(days=90),
            purpose="What a semantic cache did in a day",
            if_lost="that day's figures are too low",
        )
        self.turns = catalogue.flag(
            f"swept:{name}",
            lifetime=fixed(seconds=self.sweep_every.total_seconds() * 0.8),
            purpose="Whether some process has swept the vectors of a semantic cache lately",
            if_lost="they are swept once more",
        )

    def sources_of(self, kept: Any) -> set[str]:
        """What an answer rests on: the documents of its scope, and those it names itself."""
        named = () if self.sources is None else self.sources(kept.answer)
        return {*kept.scope.documents, *named}

    def entry_key(self, answer_id: str) -> str:
        """The key of an answer."""
        return self.keyspace.template.render({self.field: answer_id})

    def keys(self, answer_id: str) -> tuple[str, str, str]:
        """The keys of an answer, all in one cluster slot: its entry, its load, its counts."""
        fields = {self.field: answer_id}
        keys = self.cache.entry_keys(self.entry_key(answer_id), fields)
        return keys.entry, keys.load, self.hits.template.render(fields)

    def equipped(self, *, embedder: Embedder | None = None, vectors: Vectors | None = None) -> Equipped[V, S]:
        """The same with another embedder than `Lexical`, and other vectors than in this process's memory.

        `store[OUTLINES.equipped(vectors=Qdrant(url))]`, once, when the service starts. Vectors that are given
        are closed by whoever opened them.
        """
        return Equipped(self, embedder or Lexical(), vectors)

    def bind(self, store: Store) -> BoundSemanticCache[V, S]:
        """The cache of a store that has its catalogue, with `Lexical` and vectors in memory."""
        return self.equipped().bind(store)

    def __repr__(self) -> str:
        return f"<SemanticCache {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


@dataclass(frozen=True, eq=False)
class Equipped(Generic[V, S]):
    """A semantic cache with its embedder and its vectors; for `store[...]`."""

    declared: SemanticCache[V, S]
    embedder: Embedder
    vectors: Vectors | None

    def bind(self, store: Store) -> BoundSemanticCache[V, S]:
        """The cache of a store that has its catalogue."""
        vectors = Qdrant() if self.vectors is None else self.vectors
        live = BoundSemanticCache(self.declared, store, self.embedder, vectors)
        if self.vectors is None:
            store.before_close(vectors.aclose)
        store.before_close(live.close)
        return live


def _check(pattern: str, lifetime: Fixed, threshold: float, sweep_every: timedelta) -> None:
    if not isinstance(lifetime, Fixed):
        raise InvalidDeclaration(
            pattern, f"answers cannot live {lifetime}", "give a fixed lifetime, as in fixed(hours=24)"
        )
    if not 0 < threshold <= 1:
        raise InvalidDeclaration(
            pattern,
            f"threshold={threshold} is no cosine similarity to ask for",
            "give one above 0, and at most 1: 0.95 means almost the same",
        )
    if sweep_every <= timedelta(0):
        raise InvalidDeclaration(pattern, f"sweep_every={sweep_every} is no duration", "give a positive one")
