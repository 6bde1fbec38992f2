"""What is stored of an answer, and whether it is alive.

An answer is dead when its entry is gone, or when one of its sources was ended after it was asked for. Dead
ones are buried: what is left in Redis is removed in one step, unless somebody is about to answer anew, and
only then is the vector. An entry of another shape, of another version of the program, is neither alive nor
dead here: it is left alone until its time is over.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from ephemera.keyspace import Store
from ephemera.patterns.cache import cache_engine
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.semantic_cache._declaration import SemanticCache

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

BURY = Script.load("ephemera.patterns.semantic_cache", "bury")


class Kept(Protocol[V_co]):
    """An answer as it is stored."""

    prompt: str
    scope: Any
    tokens: int  # what it cost, and each hit saves

    @property
    def answer(self) -> V_co:
        """What the model said."""


class Seen(NamedTuple, Generic[V]):
    """What was found under an id."""

    kept: Kept[V] | None
    data: bytes  # as it is stored; empty when there is nothing
    dead: bool


NOTHING: Seen[Any] = Seen(None, b"", dead=True)


def kept_type(scope_type: Any, value_type: Any) -> Any:
    """The Struct of a cache's answers."""
    fields = [("prompt", str), ("scope", scope_type), ("tokens", int), ("answer", value_type)]
    return msgspec.defstruct("Kept", fields)


class Entries(Generic[V]):
    """The stored answers of one cache in one store."""

    def __init__(self, declared: SemanticCache[V, Any], store: Store) -> None:
        client = store.client("cache")
        self._run = client.run
        self._declared = declared
        self._engine = cache_engine(store[declared.cache])

    async def read(self, answer_id: str, documents: Collection[str] = ()) -> Seen[V]:
        """What is stored under an id: one trip, if `documents` are all that the answer rests on."""
        stored = await self._engine.read_stored(self._declared.entry_key(answer_id), tuple(documents))
        return Seen(stored.value, stored.data, stored.is_dead)

    async def bury(self, answer_id: str, seen: Seen[V]) -> bool:
        """Remove what is left of a dead answer; False when it is being replaced, or was."""
        return bool(await self._run(BURY, self._declared.keys(answer_id), (seen.data,)))
