"""Answers by exact match, by neighbours and by asking once: counted, and never older than a change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from ephemera import keyspace, sync
from ephemera.embedded import Valkey
from ephemera.errors import InvalidValue, LoadTimeout, StoreClosed
from ephemera.keyspace import Catalogue, Store, fixed
from ephemera.patterns.embedders import Lexical
from ephemera.patterns.semantic_cache import (
    BoundSemanticCache,
    Hits,
    ModelCalls,
    Qdrant,
    Scope,
    SemanticBackend,
    SemanticCache,
)
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


async def test_exact_then_semantic_then_asked(outlines: BoundSemanticCache[Outline, Scope]) -> None:
    """The same prompt is an exact hit, one 10 degrees off a semantic hit, and one 30 degrees off is asked."""
    model, where = Model(), scope()
    first = await outlines.get_or_ask("a pitch @0", where, model)
    same = await outlines.get_or_ask("a pitch @0", where, model)
    near = await outlines.get_or_ask("the pitch @10", where, model)
    far = await outlines.get_or_ask("a lecture @30", where, model)
    assert [first.origin, same.origin, near.origin, far.origin] == ["asked", "exact", "semantic", "asked"]
    assert first.value == same.value == near.value == Outline("a pitch @0")
    assert (near.id, near.prompt) == (first.id, "a pitch @0")
    assert near.similarity == pytest.approx(0.9848, abs=1e-4)
    assert far.value == Outline("a lecture @30")
    assert model.asked == ["a pitch @0", "a lecture @30"]


async def test_the_threshold_is_a_cosine(outlines: BoundSemanticCache[Outline, Scope]) -> None:
    """At 0.95, 18 degrees (0.9511) are near enough and 19 degrees (0.9455) are not."""
    model, where = Model(), scope()
    await outlines.get_or_ask("a pitch @0", where, model)
    assert (await outlines.get_or_ask("close @18", where, model)).origin == "semantic"
    assert (await outlines.get_or_ask("far @-19", where, model)).origin == "asked"


async def test_the_nearest_neighbour_answers(outlines: BoundSemanticCache[Outline, Scope]) -> None:
    """Of two neighbours above the threshold the nearer one's answer is returned."""
    model, where = Model(), scope()
    for prompt in ("one @0", "two @25"):
        await outlines.get_or_ask(prompt, where, model)
    assert (await outlines.get_or_ask("three @15", where, model)).value == Outline("two @25")


async def test_find_does_not_ask(outlines: BoundSemanticCache[Outline, Scope]) -> None:
    """`find` returns what is stored, and None when there is nothing."""
    model, where = Model(), scope()
    assert await outlines.find("a pitch @0", where) is None
    await outlines.get_or_ask("a pitch @0", where, model)
    found = await outlines.find("a pitch @1", where)
    assert found is not None
    assert (found.origin, found.value) == ("semantic", Outline("a pitch @0"))
    assert len(model.asked) == 1


async def test_hits_and_tokens_are_counted(
    outlines: BoundSemanticCache[Outline, Scope], store: Store
) -> None:
    """Each hit is counted beside its entry and in the day's tally, with the tokens that it saved."""
    model, where = Model(), scope()
    before = await outlines.tally()
    answer = await outlines.get_or_ask("a pitch @0", where, model)
    assert await outlines.hits(answer.id) == Hits()
    for prompt in ("a pitch @0", "a pitch @0", "the pitch @3"):
        await outlines.get_or_ask(prompt, where, model)
    assert await outlines.hits(answer.id) == Hits(exact=2, semantic=1, tokens_saved=300)
    entry, _, hits = OUTLINES._keys(answer.id)
    assert await store.call("PEXPIRETIME", hits) == await store.call("PEXPIRETIME", entry) > 0
    after = await outlines.tally(days=2)
    assert after.exact - before.exact == 2
    assert after.semantic - before.semantic == 1
    assert after.asked - before.asked == 1
    assert after.tokens_saved - before.tokens_saved == 300
    assert after.hit_ratio is not None
    assert outlines.stats.hits == 3


async def test_an_answer_lives_as_long_as_declared(
    outlines: BoundSemanticCache[Outline, Scope], store: Store
) -> None:
    """The entry has a TTL of 24 hours, without jitter."""
    answer = await outlines.get_or_ask("a pitch @0", scope(), Model())
    left = await store.call("PTTL", OUTLINES._entry_key(answer.id))
    assert 86_390_000 < left <= 86_400_000


async def test_callers_share_one_ask(outlines: BoundSemanticCache[Outline, Scope]) -> None:
    """Fifty callers of one cold prompt ask the model once; one answer is "asked", the others "exact"."""
    model, where = Model(), scope()
    model.gate.clear()
    calls = [asyncio.create_task(outlines.get_or_ask("a pitch @0", where, model)) for _ in range(50)]
    await eventually(lambda: model.asked)
    model.gate.set()
    answers = await asyncio.gather(*calls)
    assert len(model.asked) == 1
    assert sorted(answer.origin for answer in answers) == ["asked", *["exact"] * 49]


async def test_a_models_error_is_raised(outlines: BoundSemanticCache[Outline, Scope]) -> None:
    """A failed call of the model is raised as it is, nothing is stored, and the next call asks again."""
    model, where = Model(), scope()
    model.broken = True
    with pytest.raises(LookupError, match="broken"):
        await outlines.get_or_ask("a pitch @0", where, model)
    model.broken = False
    assert (await outlines.get_or_ask("a pitch @0", where, model)).origin == "asked"


async def test_an_answer_of_another_type_is_refused(outlines: BoundSemanticCache[Outline, Scope]) -> None:
    """An answer that could not be decoded again is an error at once, and not cached."""

    async def ask(prompt: str) -> Outline:
        wrong: Any = 5
        return Outline(wrong)

    with pytest.raises(InvalidValue):
        await outlines.get_or_ask("a pitch @0", scope(), ask)


async def test_a_reported_hit_is_evicted(
    outlines: BoundSemanticCache[Outline, Scope], vectors: Qdrant, store: Store
) -> None:
    """A bad hit's entry, counts and vector are gone at once, and the next caller asks."""
    model, where = Model(), scope()
    await outlines.get_or_ask("to Paris @0", where, model)
    hit = await outlines.get_or_ask("from Paris @5", where, model)
    assert hit.origin == "semantic"
    assert await outlines.report_bad_hit(hit.id)
    assert await _everything(vectors) == 0
    assert not any([await store.call("EXISTS", key) for key in OUTLINES._keys(hit.id)])
    assert (await outlines.get_or_ask("from Paris @5", where, model)).value == Outline("from Paris @5")
    assert not await outlines.report_bad_hit(hit.id)
    assert (await outlines.tally()).reported >= 1


async def test_deleting_an_answer(outlines: BoundSemanticCache[Outline, Scope], vectors: Qdrant) -> None:
    """`delete` removes the answer of a prompt in a scope, and its vector."""
    model, where = Model(), scope()
    await outlines.get_or_ask("a pitch @0", where, model)
    assert not await outlines.delete("a pitch @0", scope())
    assert await outlines.delete("a pitch @0", where)
    assert await _everything(vectors) == 0
    assert await outlines.find("a pitch @2", where) is None


async def test_invalidation_during_an_ask_wins(outlines: BoundSemanticCache[Outline, Scope]) -> None:
    """An answer that was deleted while it was asked for is neither stored nor a neighbour."""
    model, where = Model(), scope()
    model.says = "old"
    model.gate.clear()
    before = asyncio.create_task(outlines.get_or_ask("a pitch @0", where, model))
    await eventually(lambda: model.asked)
    await outlines.delete("a pitch @0", where)
    model.says = "new"
    after = asyncio.create_task(outlines.get_or_ask("a pitch @0", where, model))
    await eventually(lambda: len(model.asked) == 2)
    model.gate.set()
    assert ((await before).value.title, (await after).value.title) == ("old", "new")
    assert (await outlines.get_or_ask("a pitch @0", where, model)).value.title == "new"
    near = await outlines.find("the pitch @4", where)
    assert near is None or near.value.title == "new"


async def test_invalidating_a_source_during_an_ask_wins(outlines: BoundSemanticCache[Outline, Scope]) -> None:
    """An answer from a document that changed in the meantime is not returned to later callers."""
    model, where = Model(), scope(documents={"report"})
    model.says = "old"
    model.gate.clear()
    before = asyncio.create_task(outlines.get_or_ask("a pitch @0", where, model))
    await eventually(lambda: model.asked)
    await outlines.invalidate_source("report")
    model.says = "new"
    model.gate.set()
    assert (await before).value.title == "old"
    assert (await outlines.get_or_ask("the pitch @3", where, model)).value.title == "new"
    assert (await outlines.get_or_ask("a pitch @0", where, model)).value.title == "new"


async def test_invalidating_a_source_removes_its_answers(
    outlines: BoundSemanticCache[Outline, Scope], vectors: Qdrant, store: Store
) -> None:
    """Answers based on it by scope or by `sources` lose entry and vector; the others stay."""
    model = Model()
    theirs, others = scope(documents={"a", "b"}), scope(documents={"c"})
    by_scope = await outlines.get_or_ask("one @0", theirs, model)
    model.passages = ("b",)
    by_word = await outlines.get_or_ask("two @90", others, model)
    model.passages = ()
    await outlines.get_or_ask("three @180", others, model)
    assert await outlines.invalidate_source("b") == 2
    for answer in (by_scope, by_word):
        assert await store.call("EXISTS", OUTLINES._entry_key(answer.id)) == 0
    assert await _everything(vectors) == 1
    assert (await outlines.get_or_ask("one @1", theirs, model)).origin == "asked"
    assert (await outlines.get_or_ask("three @180", others, model)).origin == "exact"


async def test_prompts_without_words_are_matched_exactly(store: Store, vectors: Qdrant) -> None:
    """To `Lexical` a prompt of punctuation has no direction: it is asked, then an exact hit."""
    model, where = Model(), scope()
    outlines = semantic_cache(store, OUTLINES, embedder=Lexical(), vectors=vectors)
    assert (await outlines.get_or_ask("?!", where, model)).origin == "asked"
    assert (await outlines.get_or_ask("?!", where, model)).origin == "exact"
    assert (await outlines.get_or_ask("!?", where, model)).origin == "asked"


async def test_an_ask_takes_no_longer_than_allowed(server: Valkey, vectors: Qdrant) -> None:
    """A model that does not answer in time is a `LoadTimeout`."""
    hasty = Catalogue("hasty")
    cache = SemanticCache(
        hasty,
        "hasty:{hash}",
        Outline,
        scope=Scope,
        lifetime=fixed(hours=1),
        model_calls=ModelCalls(timeout=timedelta(milliseconds=50)),
        purpose="In a hurry",
    )
    model = Model()
    model.gate.clear()
    async with keyspace.connect(server.url, hasty) as store:
        with pytest.raises(LoadTimeout):
            await store[cache].get_or_ask("a pitch", scope(), model)


async def test_closing_the_store_ends_asks(server: Valkey, vectors: Qdrant) -> None:
    """Callers that wait for the model when the store closes get StoreClosed, and no task is left."""
    model = Model()
    model.gate.clear()
    resources = {OUTLINES: SemanticBackend(embedder=Compass(), vectors=vectors)}
    async with keyspace.connect(server.url, CATALOGUE, resources=resources) as store:
        outlines = store[OUTLINES]
        await outlines.find("first @0", scope())
        waiting = asyncio.create_task(outlines.get_or_ask("a pitch @1", scope(), model))
        await eventually(lambda: model.asked)
    with pytest.raises(StoreClosed):
        await waiting
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_the_store_ends_embeddings(server: Valkey, vectors: Qdrant) -> None:
    """Callers that wait for a prompt's vector when the store closes get StoreClosed, and no task is left."""
    compass = Compass()
    compass.gate.clear()
    resources = {OUTLINES: SemanticBackend(embedder=compass, vectors=vectors)}
    async with keyspace.connect(server.url, CATALOGUE, resources=resources) as store:
        outlines = store[OUTLINES]
        waiting = [
            asyncio.create_task(outlines.find("north @0", scope())),
            asyncio.create_task(outlines.get_or_ask("south @180", scope(), Model())),
        ]
        await eventually(lambda: len(compass.embedded) == len(waiting))
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in outcomes] == [StoreClosed, StoreClosed]
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_synchronous_code(server: Valkey) -> None:
    """The synchronous store runs it, as a Celery task would."""
    where = scope()

    def ask(prompt: str) -> Outline:
        return Outline(prompt)

    resources = {OUTLINES: SemanticBackend(embedder=Lexical())}
    with sync.connect(server.url, CATALOGUE, resources=resources) as store:
        for how in ("asked", "exact"):
            answer = store[OUTLINES].get_or_ask("a pitch", where, ask)
            assert (answer.origin, answer.value) == (how, Outline("a pitch"))
        assert store[OUTLINES].get_or_ask("A pitch!", where, ask).origin == "semantic"


async def test_an_answer_from_elsewhere_is_found(url: str) -> None:
    """`put` stores what another program asked: it is found, even as a neighbour, replaced, and deleted."""
    async with keyspace.connect(url, CATALOGUE) as store, Qdrant() as vectors:
        outlines, where = semantic_cache(store, OUTLINES, embedder=Compass(), vectors=vectors), scope()
        for title in ("first", "second"):
            await outlines.put("given @0", where, Outline(title))
            exact, near = await outlines.find("given @0", where), await outlines.find("given @1", where)
            assert exact is not None
            assert near is not None
            assert (exact.value, exact.origin) == (Outline(title), "exact")
            assert (near.value, near.origin) == (Outline(title), "semantic")
        await outlines.delete("given @0", where)
        assert await outlines.find("given @1", where) is None
