"""Stored answers: what an answer depends on, the id of a prompt, and whether an answer is still valid.

Two prompts may share an answer only if everything it depends on is the same. So none of it may be left out:
`Scope` has no defaults, a subclass adds fields and may not have any either, and all of it goes into the id of
an entry and into the digest that a neighbour must have.

An answer is dead when its entry is gone, or when one of its sources was invalidated after it was asked for.
What is left of a dead answer in Redis is removed in one step, unless it is being asked for again, and only
then is its vector deleted. An entry of another shape, from another version of the program, is left alone
until it expires.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import Store, storable
from ephemera.patterns.cache import StoredEntry, cache_engine
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.semantic_cache._declaration import SemanticCache

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

REMOVE = Script.load("ephemera.patterns.semantic_cache", "remove")


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer depends on besides its prompt; subclass it to add fields."""

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
            raise InvalidDeclaration(pattern, f"{scope_type!r} is no scope", "subclass Scope")
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
