"""A semantic cache of outlines, a model that can be held up, and an embedder with a compass."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import count
from typing import TypeVar

import msgspec

from ephemera.keyspace import Catalogue, Store, fixed
from ephemera.patterns.embedders import Embedder
from ephemera.patterns.semantic_cache import (
    BoundSemanticCache,
    ModelCalls,
    Scope,
    SemanticBackend,
    SemanticCache,
    VectorStore,
)
from tests.resources import with_resources

CATALOGUE = Catalogue("answers")


class Outline(msgspec.Struct, frozen=True):
    """What the model writes."""

    title: str
    tokens: int = 100
    passages: tuple[str, ...] = ()


OUTLINES = SemanticCache(
    CATALOGUE,
    "semantic_cache:{hash}",
    Outline,
    scope=Scope,
    lifetime=fixed(hours=24),
    tokens=lambda outline: outline.tokens,
    sources=lambda outline: outline.passages,
    model_calls=ModelCalls(max_concurrent=3),
    purpose="Outlines as the model wrote them",
)

_numbers = count(1)
V = TypeVar("V")
S = TypeVar("S", bound=Scope)


def semantic_cache(
    store: Store, declared: SemanticCache[V, S], *, embedder: Embedder, vectors: VectorStore
) -> BoundSemanticCache[V, S]:
    """Bind a cache with this embedder and these vectors, on the clients of a store; closed with it."""
    equipped = with_resources(store, {declared: SemanticBackend(embedder=embedder, vectors=vectors)})
    store.before_close(equipped.aclose)
    bound = equipped[declared]
    if isinstance(embedder, Compass) and bound._neighbours is not None:
        bound._neighbours._difference = lambda *_: None  # directions are numbers, which the guard compares
    return bound


def scope(**changes: object) -> Scope:
    """A scope that no other test has, but for what is given."""
    fields: dict[str, object] = {
        "organization": f"org-{next(_numbers)}",
        "provider": "claude",
        "model": "large",
        "language": "en",
        "documents": frozenset(),
        **changes,
    }
    return msgspec.convert(fields, Scope)


class Model:
    """Answers a prompt with its own text, counts, and can be held up or broken."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.says = ""
        self.passages: tuple[str, ...] = ()
        self.broken = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, prompt: str) -> Outline:
        """What it says of the world as it is when asked; the gate may keep it until later."""
        self.asked.append(prompt)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        outline = Outline(self.says or prompt, passages=self.passages)
        try:
            if self.broken:
                raise LookupError("the model is broken")
            await self.gate.wait()
            return outline
        finally:
            self.at_once -= 1


class Compass:
    """An embedder for tests: a prompt ends with `@degrees`, and is as similar as that direction."""

    def __init__(self, model: str = "compass", length: int = 2) -> None:
        self.model = model
        self.broken = False
        self.embedded: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._rest = [0.0] * (length - 2)

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """A unit vector in each text's direction."""
        self.embedded += texts
        if self.broken:
            raise OSError("the compass is broken")
        await self.gate.wait()
        angles = [math.radians(float(text.rpartition("@")[2])) for text in texts]
        return [[math.cos(angle), math.sin(angle), *self._rest] for angle in angles]
