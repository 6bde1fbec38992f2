"""Checked neighbours: a verifier before a semantic hit is returned, and a judge of samples after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, fixed
from ephemera.patterns.semantic_cache import MatchPolicy, Neighbour, Qdrant, Scope, SemanticCache, Shadow
from tests.patterns.outline_cache import Compass, Model, Outline, scope, semantic_cache
from tests.wire.conditions import eventually
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


@pytest.fixture
async def vectors() -> AsyncIterator[Qdrant]:
    """Vectors of this test alone."""
    async with Qdrant() as opened:
        yield opened


async def test_a_verifier_may_refuse(vectors: Qdrant, server: Valkey) -> None:
    """A refused neighbour is not returned, the next nearest may be; a verifier that fails refuses."""
    seen: list[tuple[str, str]] = []

    async def verify(prompt: str, neighbour: Neighbour[Outline]) -> bool:
        seen.append((prompt, neighbour.stored.prompt))
        if "bad" in neighbour.stored.prompt:
            return False
        return 1 / ("fail" not in prompt) > 0

    strict = Catalogue("strict")
    cache = SemanticCache(
        strict,
        "strict:{hash}",
        Outline,
        scope=Scope,
        lifetime=fixed(hours=1),
        match_policy=MatchPolicy(verify=verify),
        purpose="Checked",
    )
    model, where = Model(), scope()
    async with keyspace.connect(server.url, strict) as opened:
        outlines = semantic_cache(opened, cache, embedder=Compass(), vectors=vectors)
        await outlines.get_or_ask("bad @0", where, model)
        await outlines.get_or_ask("good @25", where, model)
        hit = await outlines.get_or_ask("asked @10", where, model)
        assert (hit.origin, hit.prompt) == ("semantic", "good @25")
        assert seen == [("asked @10", "bad @0"), ("asked @10", "good @25")]
        assert (await outlines.get_or_ask("fail @26", where, model)).origin == "asked"
        assert (await outlines.tally()).rejected == 2


async def test_a_neighbour_is_verified_once(vectors: Qdrant, server: Valkey) -> None:
    """A search that is repeated after orphans were removed does not return what was refused."""
    seen: list[str] = []

    async def verify(prompt: str, neighbour: Neighbour[Outline]) -> bool:
        seen.append(neighbour.stored.prompt)
        return False

    refusing = Catalogue("refusing")
    cache = SemanticCache(
        refusing,
        "refusing:{hash}",
        Outline,
        scope=Scope,
        lifetime=fixed(hours=1),
        match_policy=MatchPolicy(verify=verify),
        purpose="Refused",
    )
    model, where = Model(), scope()
    async with keyspace.connect(server.url, refusing) as store:
        outlines = semantic_cache(store, cache, embedder=Compass(), vectors=vectors)
        orphan = await outlines.get_or_ask("orphan @0", where, model)
        await outlines.get_or_ask("refused @90", where, model)
        (name,) = await vectors.collections("")
        point = await vectors.get(name, orphan.id)
        assert point is not None
        await vectors.upsert(name, point, [0.1, 1.0])
        await store.call("UNLINK", cache._entry_key(orphan.id))
        assert await outlines.find("asked @89", where) is None
        assert seen == ["refused @90"]


async def test_shadow_sampling_measures_false_hits(server: Valkey, vectors: Qdrant) -> None:
    """For sampled hits the model is asked, too; they are judged and counted, and a wrong one is evicted."""

    async def judge(served: Outline, asked: Outline) -> bool:
        return served.title.split()[0] == asked.title.split()[0]

    sampled = Catalogue("sampled")
    cache = SemanticCache(
        sampled,
        "sampled:{hash}",
        Outline,
        scope=Scope,
        lifetime=fixed(hours=1),
        match_policy=MatchPolicy(shadow=Shadow(judge=judge, share=1.0, max_concurrent=1)),
        purpose="Sampled",
    )
    model, where = Model(), scope()
    async with keyspace.connect(server.url, sampled) as store:
        outlines = semantic_cache(store, cache, embedder=Compass(), vectors=vectors)
        await outlines.get_or_ask("paris @0", where, model)
        model.gate.clear()
        for _ in range(5):  # one at a time in the background: the other four are not sampled
            assert (await outlines.get_or_ask("paris again @2", where, model)).origin == "semantic"
        await eventually(lambda: model.at_once == 1)
        model.gate.set()
        await eventually(lambda: model.at_once == 0)
        assert len(model.asked) == 2
        assert (await outlines.tally()).false_hit_rate == 0
        assert (await outlines.get_or_ask("london @3", where, model)).value == Outline("paris @0")

        async def evicted() -> bool:
            return await outlines.find("paris @0", where) is None

        while not await evicted():
            await asyncio.sleep(0.001)
        tally = await outlines.tally()
        assert (tally.judged, tally.false_hits, tally.false_hit_rate) == (2, 1, 0.5)


async def test_a_shadow_call_that_fails_is_not_judged(server: Valkey, vectors: Qdrant) -> None:
    """A failure of the model in the background affects no caller and is not counted."""

    async def judge(served: Outline, asked: Outline) -> bool:
        raise AssertionError("there is nothing to judge")

    failing = Catalogue("failing")
    cache = SemanticCache(
        failing,
        "failing:{hash}",
        Outline,
        scope=Scope,
        lifetime=fixed(hours=1),
        match_policy=MatchPolicy(shadow=Shadow(judge=judge, share=1.0)),
        purpose="Sampled",
    )
    model, where = Model(), scope()
    async with keyspace.connect(server.url, failing) as store:
        outlines = semantic_cache(store, cache, embedder=Compass(), vectors=vectors)
        await outlines.get_or_ask("paris @0", where, model)
        model.broken = True
        assert (await outlines.get_or_ask("paris @1", where, model)).value == Outline("paris @0")
        await eventually(lambda: len(model.asked) == 2)
        tally = await outlines.tally()
        assert (tally.judged, tally.false_hit_rate) == (0, None)


def test_a_shadow_that_samples_nothing_is_refused() -> None:
    """A share of zero, or above one, is refused."""

    async def judge(served: str, asked: str) -> bool:
        return served == asked

    for wrong in ({"share": 0.0}, {"share": 1.5}, {"max_concurrent": 0}):
        with pytest.raises(InvalidDeclaration, match="samples nothing"):
            Shadow(judge=judge, **wrong)
