"""Stored answers: what an answer depends on, whether it is still valid, and how often it was used.

Two prompts may share an answer only if everything it depends on is the same. So none of it may be left out:
`Scope` has no defaults, a subclass adds fields and may not have any either, and all of it goes into the id of
an entry and into the digest that a neighbour must have.

An answer is dead when its entry is gone, or when one of its sources was invalidated after it was asked for.
What is left of a dead answer in Redis is removed in one step, unless it is being asked for again, and only
then is its vector deleted. An entry of another shape, from another version of the program, is left alone
until it expires.

Counts (hits of each answer, a daily tally of the whole cache, samples of how many hits are wrong) have keys
of their own: an entry is a string, and a string cannot hold a counter (trap S6). They are sent without
waiting, in the same write as whatever else is sent, and may be lost like everything else.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from ephemera._futures import cancel_all, discard
from ephemera.errors import EphemeraError, InvalidDeclaration, InvalidValue
from ephemera.keyspace import REDIS_ERRORS, Store, storable
from ephemera.patterns._server_clock import SERVER_CLOCK
from ephemera.patterns.cache import StoredEntry, cache_engine
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.semantic_cache._declaration import SemanticCache


V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

REMOVE = Script.load("ephemera.patterns.semantic_cache", "remove")

COUNT_HIT = Script.load("ephemera.patterns.semantic_cache", "count_hit")
ADD_TO_TALLY = Script.load("ephemera.patterns.semantic_cache", "add_to_tally")

log = logging.getLogger("ephemera.semantic_cache")


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer depends on besides its prompt; subclass it to add fields.

    Args:
        organization: Whose answers these are; another organization gets none of them.
        provider: The provider of the model.
        model: The name of the model.
        language: The language of the answer.
        documents: Ids of what the answer is made from; call `invalidate_source` when one changes.

    """

    organization: str
    provider: str
    model: str
    language: str
    documents: frozenset[str]
    """Ids of what the answer is made from; call `invalidate_source` when one changes."""


S = TypeVar("S", bound=Scope)


class PromptId(NamedTuple):
    """The id of a prompt in a scope, which names its entry and its vector; and a digest of the scope."""

    id: str
    scope: str


class PromptIds(Generic[S]):
    """Makes ids: 128 bits of SHA-256 over unambiguous JSON."""

    def __init__(self, pattern: str, scope_type: type[S]) -> None:
        if not issubclass(scope_type, Scope):
            raise InvalidDeclaration(pattern, f"{scope_type!r} is not a scope", "subclass Scope")
        optional = [field.name for field in msgspec.structs.fields(scope_type) if not field.required]
        if optional:
            raise InvalidDeclaration(
                pattern,
                f"{scope_type.__name__}.{optional[0]} has a default, so it may be forgotten",
                "a scope's fields must all be given, each time",
            )
        self._pattern = pattern
        self._type = scope_type

    def checked(self, scope: S) -> S:
        """Return the scope, each field of its declared type; `InvalidValue` otherwise."""
        if not isinstance(scope, self._type):
            raise InvalidValue(self._pattern, f"answers of a {self._type.__name__}", type(scope).__name__)
        try:
            return msgspec.convert(msgspec.to_builtins(scope), self._type)
        except msgspec.ValidationError as problem:
            raise InvalidValue(self._pattern, f"answers of a {self._type.__name__}", str(problem)) from None

    def of(self, prompt: str, scope: S) -> PromptId:
        """Return the id of a prompt in a checked scope."""
        encoded = msgspec.json.encode(scope, order="deterministic")
        both = msgspec.json.encode([prompt, msgspec.Raw(encoded)])
        return PromptId(_digest(both), _digest(encoded))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


class StoredAnswer(Protocol[V_co]):
    """An answer as it is stored."""

    prompt: str
    scope: Any
    tokens: int  # what it cost, and each hit saves

    @property
    def answer(self) -> V_co:
        """What the model answered."""


def stored_answer_type(scope_type: Any, value_type: Any) -> Any:
    """Return the Struct of a cache's answers."""
    fields = [("prompt", str), ("scope", scope_type), ("tokens", int), ("answer", storable(value_type))]
    return msgspec.defstruct("StoredAnswer", fields)


class AnswerStore(Generic[V]):
    """The stored answers of one cache on one store."""

    def __init__(self, declared: SemanticCache[V, Any], store: Store) -> None:
        self._run = store.client("cache").run
        self._declared = declared
        self._engine = cache_engine(store[declared.cache])

    async def read(self, answer_id: str, documents: Collection[str] = ()) -> StoredEntry[StoredAnswer[V]]:
        """Read an answer: one round trip, if it is based on no other sources than `documents`."""
        return await self._engine.read_stored(self._declared._entry_key(answer_id), tuple(documents))

    async def remove(self, answer_id: str, data: bytes = b"") -> bool:
        """Remove what is left of a dead answer; False when it has changed, or is being asked for again."""
        return bool(await self._run(REMOVE, self._declared._keys(answer_id), (data,)))


class Hits(msgspec.Struct, frozen=True):
    """How often an answer was used since it was asked for."""

    exact: int = 0
    semantic: int = 0
    tokens_saved: int = 0


class Tally(msgspec.Struct, frozen=True):
    """What a cache did on some days, in all processes."""

    exact: int = 0
    semantic: int = 0
    asked: int = 0
    tokens_saved: int = 0
    without_vectors: int = 0  # calls that could not search for neighbours
    guarded: int = 0  # neighbours that the guard refused
    rejected: int = 0  # neighbours that the verifier refused
    reported: int = 0  # bad hits, as callers reported them
    judged: int = 0  # semantic hits that were compared with a shadow call
    false_hits: int = 0  # those of them that the judge found wrong

    @property
    def hit_ratio(self) -> float | None:
        """Hits among all answers, or None when there were none."""
        answers = self.exact + self.semantic + self.asked
        return (self.exact + self.semantic) / answers if answers else None

    @property
    def false_hit_rate(self) -> float | None:
        """Wrong ones among the semantic hits that were judged, or None before the first."""
        return self.false_hits / self.judged if self.judged else None


class Counters:
    """The counts of one cache on one store."""

    def __init__(self, declared: SemanticCache[Any, Any], store: Store) -> None:
        self._declared = declared
        self._client = store.client("cache")
        self._hits, self._tally = store[declared.hits], store[declared.tally]
        self._clock = store[SERVER_CLOCK]
        self._lifetime = str(declared.tally.lifetime.milliseconds)
        self._pending: set[asyncio.Future[Any]] = set()

    def count_hit(self, answer_id: str, kind: str, tokens: int) -> None:
        """Count an exact or semantic hit."""
        entry, _, hits = self._declared._keys(answer_id)
        self._send(COUNT_HIT, (entry, hits), (kind, str(tokens)))
        self.add(**{kind: 1}, tokens_saved=tokens)

    def add(self, **counts: int) -> None:
        """Add to the tally of today."""
        key = self._declared.tally.key(day=self._day(0))
        pairs = [part for name, by in counts.items() for part in (name, str(by))]
        self._send(ADD_TO_TALLY, (key,), (self._lifetime, *pairs))

    async def hits_of(self, answer_id: str) -> Hits:
        """Return the counts of one answer."""
        await self.flush()
        stored = await self._hits.get_all(**{self._declared.field: answer_id})
        return Hits(**{name: stored.get(name, 0) for name in Hits.__struct_fields__})

    async def tally_of(self, days: int) -> Tally:
        """Return the sum over the last `days` days, today included."""
        await self.flush()
        names = Tally.__struct_fields__
        each = await asyncio.gather(*(self._tally.get_all(day=self._day(ago)) for ago in range(days)))
        return Tally(**{name: sum(day.get(name, 0) for day in each) for name in names})

    async def flush(self) -> None:
        """Wait until what was sent has arrived or failed."""
        while self._pending:
            await asyncio.wait(self._pending)

    def _day(self, ago: int) -> str:
        """Return a day of the server's calendar, in UTC."""
        now = datetime.fromtimestamp(self._clock.now() / 1000, UTC)
        return (now - timedelta(days=ago)).strftime("%Y%m%d")

    def _send(self, script: Script, keys: tuple[str, ...], arguments: tuple[str, ...]) -> None:
        try:
            sent = asyncio.ensure_future(self._client.run(script, keys, arguments))
        except EphemeraError:
            return  # down or closed: the count is lost
        self._pending.add(sent)
        sent.add_done_callback(self._pending.discard)
        discard(sent)


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
        await cancel_all(self._tasks)

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
