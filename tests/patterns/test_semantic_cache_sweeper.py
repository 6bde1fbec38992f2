"""Orphaned vectors hide nothing and are swept; vectors of different models are never compared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Store, fixed
from ephemera.patterns.semantic_cache import BoundSemanticCache, Qdrant, Scope, SemanticCache, SweepReport
from ephemera.patterns.semantic_cache._answers import REMOVE, AnswerStore
from tests.patterns.outline_cache import CATALOGUE, OUTLINES, Compass, Model, Outline, scope, semantic_cache
from tests.wire.conditions import eventually
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with the cache, on every kind of server."""
    async with keyspace.connect(url, CATALOGUE) as opened:
        yield opened


@pytest.fixture
async def vectors() -> AsyncIterator[Qdrant]:
    """Vectors of this test alone."""
    async with Qdrant() as opened:
        yield opened


@pytest.fixture
def outlines(store: Store, vectors: Qdrant) -> BoundSemanticCache[Outline, Scope]:
    """The cache, with the compass for an embedder."""
    return semantic_cache(store, OUTLINES, embedder=Compass(), vectors=vectors)


async def _everything(vectors: Qdrant) -> int:
    pages = [await vectors.scroll(name, None) for name in await vectors.collections("")]
    return sum(len(page.points) for page in pages)


async def test_orphans_do_not_hide_valid_answers(
    outlines: BoundSemanticCache[Outline, Scope], vectors: Qdrant, store: Store
) -> None:
    """Ten vectors without entries that are nearer than a valid one are removed, and the valid one answers."""
    model, where = Model(), scope()
    await outlines.get_or_ask("alive @12", where, model)
    for degrees in range(10):
        lonely = await outlines.get_or_ask(f"far @{40 + 20 * degrees}", where, model)
        await store.call("UNLINK", OUTLINES._entry_key(lonely.id))
        name = (await vectors.collections(""))[0]
        point = await vectors.get(name, lonely.id)
        assert point is not None
        await vectors.upsert(name, point, [1.0, degrees / 1000])
    assert (await outlines.get_or_ask("asked @0", where, model)).value == Outline("alive @12")
    assert await _everything(vectors) == 1


async def test_a_sweep_removes_orphans(
    outlines: BoundSemanticCache[Outline, Scope], vectors: Qdrant, store: Store
) -> None:
    """Of three hundred vectors exactly those without an entry are removed."""
    where, model = scope(), Model()
    answers = await asyncio.gather(
        *(outlines.get_or_ask(f"n{number} @{number * 20}", where, model) for number in range(18))
    )
    name = (await vectors.collections(""))[0]
    first = await vectors.get(name, answers[0].id)
    assert first is not None
    for number in range(282):
        await vectors.upsert(name, first._replace(id=f"{number:032x}"), [0.0, 1.0])
    assert await outlines.sweep() == SweepReport(checked=300, removed=282)
    assert await outlines.sweep() == SweepReport(checked=18, removed=0)


SWEPT = Catalogue("swept")
BRIEFLY = SemanticCache(
    SWEPT,
    "swept:me:{hash}",
    Outline,
    scope=Scope,
    lifetime=fixed(hours=1),
    sweep_every=timedelta(milliseconds=250),
    purpose="Swept often",
)


class Shared:
    """Vectors that say they are shared, and count sweeps."""

    shared = True

    def __init__(self, vectors: Qdrant) -> None:
        self._vectors = vectors
        self.sweeps = self.at_once = self.most_at_once = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vectors, name)

    async def collections(self, prefix: str) -> list[str]:
        """Count the start of a sweep."""
        self.sweeps += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        return await self._vectors.collections(prefix)


async def test_the_background_sweep(server: Valkey, vectors: Qdrant) -> None:
    """From the first write on, orphans are removed in the background."""
    async with keyspace.connect(server.url, SWEPT) as store:
        outlines = semantic_cache(store, BRIEFLY, embedder=Compass(), vectors=vectors)
        answer = await outlines.get_or_ask("a pitch @0", scope(), Model())
        await store.call("UNLINK", BRIEFLY._entry_key(answer.id))
        while await _everything(vectors):
            await asyncio.sleep(0.005)


async def test_shared_vectors_are_swept_by_one_at_a_time(server: Valkey, vectors: Qdrant) -> None:
    """Of five stores one sweeps in each interval."""
    shared: Any = Shared(vectors)
    async with AsyncExitStack() as opened:
        for number in range(5):
            store = await opened.enter_async_context(keyspace.connect(server.url, SWEPT))
            outlines = semantic_cache(store, BRIEFLY, embedder=Compass(), vectors=shared)
            await outlines.get_or_ask(f"a pitch @{number}", scope(), Model())
        await eventually(lambda: shared.sweeps >= 4)
    assert shared.most_at_once == 1


async def test_a_replaced_answer_is_not_removed(
    outlines: BoundSemanticCache[Outline, Scope], store: Store
) -> None:
    """Removing an answer that was read as dead, but was replaced since, leaves the new one and its counts."""
    model, where = Model(), scope()
    entries: AnswerStore[Outline] = AnswerStore(OUTLINES, store)
    answer = await outlines.get_or_ask("a pitch @0", where, model)
    await store.call("UNLINK", OUTLINES._entry_key(answer.id))
    dead = await entries.read(answer.id)
    assert (await outlines.get_or_ask("a pitch @0", where, model)).origin == "asked"
    assert (await outlines.get_or_ask("a pitch @0", where, model)).origin == "exact"
    assert not await entries.remove(answer.id, dead.data)
    assert (await outlines.hits(answer.id)).exact == 1
    assert (await outlines.get_or_ask("a pitch @0", where, model)).origin == "exact"


@pytest.mark.parametrize(
    ("entry", "token", "read", "gone"),
    [
        ("", "", "", 1),
        ("old", "", "old", 1),
        ("new", "", "old", 0),
        ("", "asking", "", 0),
        ("old", "asking", "old", 0),
    ],
)
async def test_an_answer_that_is_asked_for_is_not_removed(
    server: Valkey, key: str, entry: str, token: str, read: str, gone: int
) -> None:
    """Removed is what was read and is not being asked for; otherwise nothing changes, counts included."""
    keys = (f"{key}:entry", f"{key}:token", f"{key}:counts")
    async with keyspace.connect(server.url, CATALOGUE) as store:
        for each, value in zip(keys, (entry, token, "7"), strict=True):
            if value:
                await store.call("SET", each, value, "PX", 60_000)
        assert await store.call("EVAL", REMOVE.source, 3, *keys, read) == gone
        left = [(await store.call("GET", each) or b"").decode() for each in keys]
        assert left == (["", token, ""] if gone else [entry, token, "7"])


async def test_models_are_not_compared(store: Store, vectors: Qdrant) -> None:
    """A new embedding model gets a collection of its own; exact matches remain."""
    model, where = Model(), scope()
    old = semantic_cache(store, OUTLINES, embedder=Compass("v1"), vectors=vectors)
    new = semantic_cache(store, OUTLINES, embedder=Compass("v2"), vectors=vectors)
    longer = semantic_cache(store, OUTLINES, embedder=Compass("v2", length=5), vectors=vectors)
    await old.get_or_ask("a pitch @0", where, model)
    assert await new.find("the pitch @2", where) is None
    assert await longer.find("the pitch @2", where) is None
    assert (await new.get_or_ask("a pitch @0", where, model)).origin == "exact"
    await new.delete("a pitch @0", where)
    assert await old.find("the pitch @2", where) is None
    assert await _everything(vectors) == 0
    assert len(await vectors.collections("answers.semantic-cache-hash.")) == 3
