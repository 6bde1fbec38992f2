"""The declaration of a semantic cache: its answers, their counts, and what it needs besides Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ephemera.errors import InvalidDeclaration, MissingResource
from ephemera.keyspace import Catalogue, Fixed, Store, check_declaration, check_durations, fixed
from ephemera.patterns.cache import Cache, Loading
from ephemera.patterns.embedders import Embedder
from ephemera.patterns.semantic_cache._answers import PromptIds, Scope, Shadow, stored_answer_type
from ephemera.patterns.semantic_cache._neighbours import Neighbour
from ephemera.patterns.semantic_cache._runtime import BoundSemanticCache
from ephemera.patterns.semantic_cache._vector_stores import Qdrant, VectorStore

V = TypeVar("V")
S = TypeVar("S", bound=Scope)


@dataclass(frozen=True, kw_only=True)
class SemanticBackend:
    """What similar matching needs besides Redis, for `connect(..., resources={OUTLINES: ...})`."""

    embedder: Embedder
    """What turns prompts into vectors: `Lexical()`, `MiniLM()`, `OpenAICompatible(...)` or your own."""
    vectors: VectorStore | None = None
    """Where vectors are stored, which you close; by default in this process's memory."""


@dataclass(frozen=True, kw_only=True)
class MatchPolicy(Generic[V]):
    """The option `match_policy=MatchPolicy(...)`: which neighbour's answer may be returned."""

    threshold: float = 0.95
    """The least cosine similarity of the prompts; the guard refuses opposites however similar they are."""
    verify: Callable[[str, Neighbour[V]], Awaitable[bool]] | None = None
    """`await verify(prompt, neighbour)` must agree, too; by default the guard alone decides."""
    shadow: Shadow[V] | None = None
    """Samples semantic hits to learn how many are wrong; by default none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """The option `model_calls=ModelCalls(...)`: timeout and bounds of calls of the model."""

    timeout: timedelta = timedelta(minutes=2)
    """How long a call of the model may take; then its callers get `LoadTimeout`."""
    max_concurrent: int = 8
    """Calls of the model that run at once in a process."""
    lease: timedelta = timedelta(seconds=2)
    """How long other processes wait for a process that died while it asked."""

    def __post_init__(self) -> None:
        check_durations("ModelCalls", timeout=self.timeout, lease=self.lease)


_MATCH_POLICY: MatchPolicy[Any] = MatchPolicy()
_MODEL_CALLS = ModelCalls()


class SemanticCache(Generic[V, S]):
    """The declaration of a semantic cache; `store[OUTLINES]` is the `BoundSemanticCache` of a store.

    Args:
        catalogue: The catalogue that declares the cache's keys.
        pattern: The pattern of the answers' keys; its one field is the id of a prompt in its scope.
        value_type: The type of the answers.
        scope: What an answer depends on besides its prompt: a subclass of `Scope`.
        lifetime: How long an answer is kept: a fixed lifetime.
        match_policy: Threshold, verifier and shadow sampling of semantic hits.
        tokens: Returns what an answer cost, for the statistics.
        sources: Names what an answer is based on besides the documents of its scope.
        model_calls: Timeout and bounds of calls of the model.
        sweep_every: How often orphaned vectors are removed.
        sensitive: Whether answers are personal or secret; consoles and logs then hide them.
        purpose: What the cache is for, for the generated documentation.
        invalidated_by: What invalidates answers.
        resource_of: The declaration whose resource the backend is, for one that is built on this cache.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        value_type: type[V],
        *,
        scope: type[S],
        lifetime: Fixed,
        match_policy: MatchPolicy[V] = _MATCH_POLICY,
        tokens: Callable[[V], int] | None = None,
        sources: Callable[[V], Iterable[str]] | None = None,
        model_calls: ModelCalls = _MODEL_CALLS,
        sweep_every: timedelta = timedelta(minutes=15),
        sensitive: bool = False,
        purpose: str,
        invalidated_by: tuple[str, ...] = ("a change of a source", "a reported bad hit"),
        resource_of: object = None,
    ) -> None:
        check_declaration(catalogue, pattern, sweep_every=sweep_every)
        _check(pattern, lifetime, match_policy.threshold, sweep_every)
        self.prompt_ids = PromptIds(pattern, scope)
        self.match_policy = match_policy
        self.tokens = tokens
        self.sources = sources
        self.model_calls = model_calls
        self.sweep_every = sweep_every
        self._resource_of = self if resource_of is None else resource_of
        self.answer_type: Any = stored_answer_type(scope, value_type)
        self.cache: Cache[Any] = Cache(
            catalogue,
            pattern,
            self.answer_type,
            fresh=timedelta(milliseconds=lifetime.milliseconds),
            loading=Loading(
                hard_timeout=model_calls.timeout,
                max_loads=model_calls.max_concurrent,
                lease=model_calls.lease,
                jitter=0,  # answers are kept for as long as declared
                early_refresh=0,  # the model is not asked again for what is still valid
            ),
            tags=lambda answer, **_: self._sources_of(answer),
            sensitive=sensitive,
            purpose=purpose,
            saves="a call of the model",
            invalidated_by=invalidated_by,
            if_lost="the model is asked again",
        )
        self.keyspace = self.cache.keyspace
        if len(self.keyspace.template.fields) != 1:
            raise InvalidDeclaration(pattern, "it needs one field, the id", "write it as 'answers:{id}'")
        (self.field,) = self.keyspace.template.fields
        self._declare_companions(catalogue, pattern, lifetime)
        catalogue.patterns.append(self)

    def _declare_companions(self, catalogue: Catalogue, pattern: str, lifetime: Fixed) -> None:
        name = pattern.replace("{", "").replace("}", "")
        self.hits = catalogue.mapping(
            f"hits:{pattern}",
            int,
            lifetime=lifetime,
            purpose="How often an answer was used, and the tokens that saved",
            invalidated_by=("the end of its answer",),
            if_lost="counting starts again",
            hash_tag=self.field,
        )
        self.tally = catalogue.mapping(
            f"tally:{name}:{{day}}",
            int,
            lifetime=fixed(days=90),
            purpose="What a semantic cache did in a day",
            if_lost="that day's figures are too low",
        )
        self.swept = catalogue.flag(
            f"swept:{name}",
            lifetime=fixed(seconds=self.sweep_every.total_seconds() * 0.8),
            purpose="Whether a process has swept the vectors of a semantic cache lately",
            if_lost="they are swept again",
        )

    def _sources_of(self, answer: Any) -> set[str]:
        """Return what an answer is based on: the documents of its scope, and those it names itself."""
        named = () if self.sources is None else self.sources(answer.answer)
        return {*answer.scope.documents, *named}

    def _entry_key(self, answer_id: str) -> str:
        """Return the key of an answer."""
        return self.keyspace.template.render({self.field: answer_id})

    def _keys(self, answer_id: str) -> tuple[str, str, str]:
        """Return the keys of an answer, all in one cluster slot: its entry, its load token, its counts."""
        fields = {self.field: answer_id}
        keys = self.cache.entry_keys(self._entry_key(answer_id), fields)
        return keys.entry, keys.load, self.hits.template.render(fields)

    def bind(self, store: Store) -> BoundSemanticCache[V, S]:
        """Return the cache of a store that has its catalogue; without a backend it matches exactly."""
        try:
            backend = store.resource(self._resource_of, "a SemanticBackend", SemanticBackend)
        except MissingResource as problem:
            if problem.given is not None:
                raise
            return BoundSemanticCache(self, store)
        vectors = backend.vectors
        if vectors is None:
            vectors = Qdrant()
            store.before_close(vectors.aclose)
        return BoundSemanticCache(self, store, backend.embedder, vectors)

    def __repr__(self) -> str:
        return f"<SemanticCache {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


def _check(pattern: str, lifetime: Fixed, threshold: float, sweep_every: timedelta) -> None:
    if not isinstance(lifetime, Fixed):
        raise InvalidDeclaration(
            pattern, f"answers cannot live {lifetime}", "give a fixed lifetime, as in fixed(hours=24)"
        )
    if not 0 < threshold <= 1:
        raise InvalidDeclaration(
            pattern,
            f"threshold={threshold} is not a cosine similarity to ask for",
            "give one above 0, and at most 1: 0.95 means almost the same",
        )
    if sweep_every <= timedelta(0):
        raise InvalidDeclaration(
            pattern, f"sweep_every={sweep_every} is not a duration", "give a positive one"
        )
