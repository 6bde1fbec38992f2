"""Traps S6, S7, S8, C2 and C8: the described way is run and fails, and ours holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from qdrant_client import QdrantClient, models

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.errors import ServerError
from ephemera.keyspace import Catalogue, Store, fixed
from ephemera.patterns.cache import Cache, Storage
from ephemera.patterns.embedders import Lexical
from ephemera.patterns.semantic_cache import BoundSemanticCache, Hits, Qdrant, Scope, SemanticCache
from tests.patterns.outline_cache import CATALOGUE, OUTLINES, Compass, Model, Outline, scope, semantic_cache

PROMPT = "Create an outline for a pitch deck of a B2B SaaS startup, for venture investors"
SIMILAR = "create an outline for a pitch deck of a B2B SaaS startup for venture investors!"


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with the cache of outlines."""
    async with keyspace.connect(server.url, CATALOGUE) as opened:
        yield opened


@pytest.fixture
async def vectors() -> AsyncIterator[Qdrant]:
    """Vectors of this test alone."""
    async with Qdrant() as opened:
        yield opened


@pytest.fixture
def outlines(store: Store, vectors: Qdrant) -> BoundSemanticCache[Outline, Scope]:
    """Our cache, with the embedder that needs no model."""
    return semantic_cache(store, OUTLINES, embedder=Lexical(), vectors=vectors)


class Sample:
    """The description's own function, step by step: vectors are searched and never written."""

    def __init__(self, store: Store, client: QdrantClient) -> None:
        self.store, self.client = store, client
        if not client.collection_exists("semantic_cache"):
            size = models.VectorParams(size=1024, distance=models.Distance.COSINE)
            client.create_collection("semantic_cache", vectors_config=size)

    async def key_of(self, query: str) -> str:
        """The key, made of the embedding alone."""
        [embedding] = await Lexical().embed([query])
        return f"sample:semantic_cache:{hashlib.sha256(repr(embedding).encode()).hexdigest()[:32]}"

    async def get_or_create(self, query: str, model: Model, *, count: bool = False) -> str:
        """An answer as the sample gets it; with `count` it counts the hit, where it has one."""
        [embedding] = await Lexical().embed([query])
        found = self.client.query_points("semantic_cache", query=embedding, limit=1, score_threshold=0.95)
        for point in found.points:
            key = (point.payload or {})["redis_key"]
            entry = await self.store.call("GET", key)
            if entry:
                if count:
                    await self.store.call("HINCRBY", key, "hit_count", 1)
                return str(json.loads(entry)["response"])
        response = (await model(query)).title
        entry = json.dumps({"original_query": query, "response": response, "hit_count": 0})
        await self.store.call("SETEX", await self.key_of(query), 86400, entry)
        return response

    async def index(self, query: str) -> None:
        """The step that the sample lacks: write the vector."""
        [embedding] = await Lexical().embed([query])
        payload = {"redis_key": await self.key_of(query)}
        point = models.PointStruct(id=1, vector=embedding, payload=payload)
        self.client.upsert("semantic_cache", points=[point])


@pytest.fixture
def sample(store: Store) -> Iterator[Sample]:
    """The sample on a Qdrant of its own."""
    client = QdrantClient(":memory:")
    yield Sample(store, client)
    client.close()


async def test_s6_counting_in_the_entry_fails(
    sample: Sample, outlines: BoundSemanticCache[Outline, Scope], store: Store
) -> None:
    """HINCRBY on the JSON string is WRONGTYPE, so the sample fails on a hit; ours counts beside the entry."""
    model, where = Model(), scope()
    await sample.get_or_create(PROMPT, model)
    await sample.index(PROMPT)
    with pytest.raises(ServerError, match="WRONGTYPE"):
        await sample.get_or_create(PROMPT, model, count=True)

    answer = await outlines.get_or_ask(PROMPT, where, model)
    for prompt in (PROMPT, PROMPT, SIMILAR):
        assert (await outlines.get_or_ask(prompt, where, model)).value == answer.value
    assert await outlines.hits(answer.id) == Hits(exact=2, semantic=1, tokens_saved=300)
    entry, _, hits = OUTLINES._keys(answer.id)
    assert (await store.call("TYPE", entry), await store.call("TYPE", hits)) == (b"string", b"hash")


async def test_s7_a_cache_that_never_writes_its_vector_never_hits(
    sample: Sample, outlines: BoundSemanticCache[Outline, Scope]
) -> None:
    """The sample asks the model for the same query each time; ours hits by its own vector."""
    theirs, ours, where = Model(), Model(), scope()
    for _ in range(3):
        await sample.get_or_create(PROMPT, theirs)
    assert len(theirs.asked) == 3
    for prompt in (PROMPT, SIMILAR, SIMILAR):
        await outlines.get_or_ask(prompt, where, ours)
    assert len(ours.asked) == 1


@pytest.mark.parametrize("how", ["expired", "evicted", "deleted", "reported", "source ended"])
async def test_s7_a_vector_does_not_outlive_its_entry(
    outlines: BoundSemanticCache[Outline, Scope], vectors: Qdrant, store: Store, how: str
) -> None:
    """However an entry ends, its vector matches nothing from then on, and a search or a sweep removes it."""
    model, where = Model(), scope(documents={f"document that is {how}"})
    answer = await outlines.get_or_ask(PROMPT, where, model)
    key = OUTLINES._entry_key(answer.id)
    if how == "expired":
        await store.call("PEXPIREAT", key, 1)
    elif how == "evicted":
        await store.call("UNLINK", key)
    elif how == "deleted":
        await outlines.delete(PROMPT, where)
    elif how == "reported":
        await outlines.report_bad_hit(answer.id)
    else:
        await outlines.invalidate_source(f"document that is {how}")
    assert await outlines.find(SIMILAR, where) is None
    (name,) = await vectors.collections("")
    assert (await vectors.scroll(name, None)).points == []


async def test_s7_an_orphan_that_no_search_finds_is_swept(
    sample: Sample, outlines: BoundSemanticCache[Outline, Scope], store: Store
) -> None:
    """The sample's vector stays forever once its entry is gone; our sweep removes it."""
    model = Model()
    await sample.get_or_create(PROMPT, model)
    await sample.index(PROMPT)
    await store.call("UNLINK", await sample.key_of(PROMPT))
    await sample.get_or_create("Something else entirely", model)
    assert sample.client.count("semantic_cache").count == 1

    answer = await outlines.get_or_ask(PROMPT, scope(), model)
    await outlines.get_or_ask("Something else entirely", scope(), model)
    await store.call("UNLINK", OUTLINES._entry_key(answer.id))
    assert await outlines.sweep() == (2, 1)


async def test_s7_a_vector_that_is_being_filled_is_no_orphan(
    outlines: BoundSemanticCache[Outline, Scope], vectors: Qdrant, store: Store
) -> None:
    """Before the entry of a vector is written, neither a search nor a sweep removes the vector."""
    answer = await outlines.get_or_ask(PROMPT, where := scope(), Model())
    entry, load, _ = OUTLINES._keys(answer.id)
    stored = await store.call("GET", entry)
    await store.call("UNLINK", entry)
    await store.call("SET", load, "the token of a process that asks", "PX", 60_000)
    assert await outlines.find(SIMILAR, where) is None
    assert await outlines.sweep() == (1, 0)
    await store.call("SET", entry, stored, "PX", 60_000)
    await store.call("UNLINK", load)
    found = await outlines.find(SIMILAR, where)
    assert found is not None
    assert found.origin == "semantic"


@pytest.mark.parametrize("field", Scope.__struct_fields__)
async def test_s8_every_field_of_the_scope_separates_answers(
    sample: Sample, outlines: BoundSemanticCache[Outline, Scope], field: str
) -> None:
    """The sample gives one customer another's answer; ours differ by id and as neighbours in each field."""
    theirs = Model()
    theirs.says = "made from the documents of the first"
    await sample.get_or_create(PROMPT, theirs)
    await sample.index(PROMPT)
    theirs.says = "made from the documents of the second"
    assert await sample.get_or_create(PROMPT, theirs) == "made from the documents of the first"

    model, where = Model(), scope(documents={"report"})
    other = msgspec.structs.replace(where, **{field: frozenset({"new"}) if field == "documents" else "new"})
    first = await outlines.get_or_ask(PROMPT, where, model)
    assert await outlines.find(PROMPT, other) is None
    assert await outlines.find(SIMILAR, other) is None
    second = await outlines.get_or_ask(PROMPT, other, model)
    assert (second.origin, second.id == first.id) == ("asked", False)
    near = await outlines.find(SIMILAR, where)
    assert near is not None
    assert near.id == first.id


def test_s8_a_scope_cannot_be_left_out() -> None:
    """Leaving out a part of the scope is an error where it is written, not a wrong answer later."""
    parts: dict[str, Any] = msgspec.structs.asdict(scope())
    for name in parts:
        with pytest.raises(TypeError, match=name):
            Scope(**{other: part for other, part in parts.items() if other != name})


async def test_s8_documents_are_a_set(outlines: BoundSemanticCache[Outline, Scope]) -> None:
    """The same documents in another order are the same scope; one more is another."""
    model, where = Model(), scope(documents=["b", "a"])
    await outlines.get_or_ask(PROMPT, where, model)
    same = msgspec.structs.replace(where, documents=frozenset(("a", "b")))
    more = msgspec.structs.replace(where, documents=frozenset(("a", "b", "c")))
    assert (await outlines.get_or_ask(PROMPT, same, model)).origin == "exact"
    assert (await outlines.get_or_ask(PROMPT, more, model)).origin == "asked"


GATEWAY = Catalogue("gateway")
ANSWERS = SemanticCache(
    GATEWAY,
    "gl:ai:cache:{prompt_hash}",
    Outline,
    scope=Scope,
    lifetime=fixed(hours=1),
    sources=lambda answer: answer.passages,
    purpose="Answers of the model",
)
PASSAGES = Cache(
    GATEWAY,
    "gl:passage:{passage_id}",
    str,
    fresh=timedelta(hours=1),
    purpose="Passages",
)
PARTS = Cache(
    GATEWAY,
    "gl:passage:{passage_id}:{suffix}",
    str,
    fresh=timedelta(hours=1),
    storage=Storage(hash_tag="passage_id"),
    purpose="What belongs to a passage",
)
SUFFIXES = ("witnesses", "words", "xrefs", "commentary")


@pytest.fixture
async def gateway(server: Valkey) -> AsyncIterator[Store]:
    """A store with the gateway's caches."""
    async with keyspace.connect(server.url, GATEWAY) as opened:
        yield opened


async def test_c2_exact_first_then_semantic(gateway: Store, vectors: Qdrant) -> None:
    """A hash of the prompt misses a similar one; ours hits it, and embeds nothing for an exact hit."""
    theirs = Model()
    for prompt in ("what does it mean @0", "what could it mean @2"):
        key = f"naive:ai:cache:{hashlib.sha256(prompt.encode()).hexdigest()}"
        if await gateway.call("GET", key) is None:
            await gateway.call("SETEX", key, 3600, (await theirs(prompt)).title)
    assert len(theirs.asked) == 2

    model, where, compass = Model(), scope(), Compass()
    answers = semantic_cache(gateway, ANSWERS, embedder=compass, vectors=vectors)
    hows = [
        (await answers.get_or_ask(f"what {word} it mean @{degrees}", where, model)).origin
        for word, degrees in (("does", 0), ("does", 0), ("could", 2), ("does", 0))
    ]
    assert hows == ["asked", "exact", "semantic", "exact"]
    assert compass.embedded == ["what does it mean @0", "what could it mean @2"]


class Corpus:
    """The source of truth: passages, and how often each was read."""

    def __init__(self, name: str) -> None:
        self.texts = {f"{name}.{number}": f"verse {number}" for number in range(1, 4)}
        self.reads: list[str] = []

    async def passage(self, passage_id: str) -> str:
        """One passage."""
        self.reads.append(passage_id)
        return self.texts[passage_id]

    async def part(self, passage_id: str, suffix: str) -> str:
        """What belongs to it."""
        self.reads.append(f"{passage_id}:{suffix}")
        return f"{suffix} of {self.texts[passage_id]}"

    def ingest(self, texts: dict[str, str]) -> list[str]:
        """Take new texts; the ids of those that are different, which is what the ingest event carries."""
        changed = [each for each, text in texts.items() if self.texts.get(each) != text]
        self.texts |= texts
        return changed


async def _read_all(gateway: Store, corpus: Corpus) -> dict[str, str]:
    found = {}
    for each in corpus.texts:
        found[each] = await gateway[PASSAGES].get_or_load(corpus.passage, passage_id=each)
        for suffix in SUFFIXES:
            part = await gateway[PARTS].get_or_load(corpus.part, passage_id=each, suffix=suffix)
            found[f"{each}:{suffix}"] = part
    return found


async def _on_ingest(gateway: Store, answers: BoundSemanticCache[Outline, Scope], changed: list[str]) -> None:
    """What a service does when an ingest event arrives."""
    await gateway[PASSAGES].delete_many({"passage_id": each} for each in changed)
    await gateway[PARTS].delete_many(
        {"passage_id": each, "suffix": suffix} for each in changed for suffix in SUFFIXES
    )
    for each in changed:
        await answers.invalidate_source(each)


async def test_c8_an_ingest_invalidates_exactly_what_changed(gateway: Store, vectors: Qdrant) -> None:
    """For an hour the cache would serve old text; after the event what changed is new, the rest untouched."""
    corpus = Corpus("john.3")
    one, two, three = corpus.texts
    answers = semantic_cache(gateway, ANSWERS, embedder=Compass(), vectors=vectors)
    model, where = Model(), scope(language="en")
    await _read_all(gateway, corpus)
    model.passages, model.says = (one, two), "old"
    await answers.get_or_ask("about both @0", where, model)
    model.passages, model.says = (three,), "about three"
    await answers.get_or_ask("about the third @90", where, model)

    changed = corpus.ingest({one: "verse 1", two: "verse 2, corrected", three: "verse 3"})
    assert changed == [two]
    corpus.reads.clear()
    stale = await _read_all(gateway, corpus)
    assert (stale[two], corpus.reads) == ("verse 2", [])  # the hour of the description

    await _on_ingest(gateway, answers, changed)
    fresh = await _read_all(gateway, corpus)
    assert fresh[two] == "verse 2, corrected"
    assert fresh[f"{two}:words"] == "words of verse 2, corrected"
    assert corpus.reads == [two, *(f"{two}:{suffix}" for suffix in SUFFIXES)]
    model.passages, model.says = (one, two), "new"
    assert (await answers.get_or_ask("about them @1", where, model)).value.title == "new"
    assert (await answers.get_or_ask("about both @0", where, model)).value.title == "new"
    assert (await answers.get_or_ask("about the third @91", where, model)).value.title == "about three"
    assert (await answers.get_or_ask("about the third @90", where, model)).origin == "exact"
