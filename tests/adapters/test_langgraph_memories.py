"""Memories of graphs: LangGraph's contract for stores, on every server, called both ways."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, Item, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from ephemera import Catalogue, InvalidDeclaration, fixed, keyspace, sliding, sync
from ephemera.adapters.langgraph import GraphMemories, GraphStore
from ephemera.embedded import Valkey
from ephemera.errors import InvalidValue, MissingResource, SyncCallInEventLoop, UndeclaredKeyspace
from ephemera.keyspace import Store
from tests.adapters.graph_fixtures import State
from tests.patterns.trips import Counting

CATALOGUE = Catalogue("test-memories")
MEMORIES = GraphMemories(CATALOGUE, "memory:{namespace}", lifetime=fixed(hours=1))
SMALL = GraphMemories(CATALOGUE, "small:{namespace}", lifetime=fixed(hours=1), max_items=3)
FADING = GraphMemories(
    CATALOGUE,
    "fading:{namespace}",
    lifetime=fixed(hours=1),
    ttl={"default_ttl": 10, "refresh_on_read": False},
)


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Vectors that count letters."""
    return [[float(text.lower().count(letter)) for letter in "abcdefgh"] for text in texts]


INDEX = {"dims": 8, "embed": embed, "fields": ["text", "notes[*]"]}


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with memories, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE, resources={MEMORIES: INDEX}) as opened:
        yield opened


@pytest.fixture
async def local(server: Valkey) -> AsyncIterator[Store]:
    """A store on one server."""
    async with keyspace.connect(server.url, CATALOGUE, resources={MEMORIES: INDEX}) as opened:
        yield opened


@pytest.fixture
def blocking(url: str) -> Iterator[sync.SyncStore]:
    """A synchronous store."""
    with sync.connect(url, CATALOGUE, resources={MEMORIES: INDEX}) as opened:
        yield opened


@pytest.fixture
def root() -> str:
    """The first label of a test's namespaces."""
    return uuid4().hex


def hash_of(*namespace: str, declared: GraphMemories = MEMORIES) -> str:
    """The key of a namespace."""
    return declared.keyspace.key(namespace=".".join(namespace))


FILTERS: list[dict[str, Any]] = [
    {},
    {"tags": ["x", 1]},
    {"n": {"$gte": 5, "$lt": 40}},
    {"deep": {"n": 1}},
    {"n": {"$ne": 4}},
]


def operation(chosen: Random, root: str) -> Any:
    """A random operation on a few items of a few namespaces."""
    namespace = (root, *chosen.choice([(), ("a",), ("a", "b"), ("c",)]))
    number, key = chosen.randrange(100), f"key{chosen.randrange(4)}"
    value = {
        "text": "abcdefgh"[number % 7 :],
        "n": number,
        "tags": ["x", number % 2],
        "deep": {"n": number % 3},
    }
    prefix = MatchCondition("prefix", (root, *chosen.choice([(), ("a",), ("*",)])))
    ending = chosen.choice([(), (MatchCondition("suffix", ("b",)),)])
    return chosen.choice(
        [
            PutOp(namespace, key, value),
            PutOp(namespace, key, value),
            PutOp(namespace, key, None),
            GetOp(namespace, key),
            SearchOp(namespace, chosen.choice(FILTERS), limit=100),
            ListNamespacesOp((prefix, *ending), limit=100),
        ]
    )


def comparable(result: Any, theirs: InMemoryStore) -> Any:
    """A result without times and order, and without the emptied namespaces that only theirs lists."""
    if isinstance(result, Item):
        return result.namespace, result.key, result.value
    if not isinstance(result, list):
        return result
    if all(isinstance(each, tuple) for each in result):
        return {namespace for namespace in result if theirs._data[namespace]}
    return sorted((item.key, item.namespace, str(item.value)) for item in result)


@pytest.mark.parametrize("seed", [1, 2])
async def test_ours_does_what_the_store_in_memory_does(store: Store, root: str, seed: int) -> None:
    """Two hundred random batches of one to four operations have the same results."""
    chosen, theirs, ours = Random(seed), InMemoryStore(), store[MEMORIES]
    for _ in range(200):
        batch = [operation(chosen, root) for _ in range(chosen.randrange(1, 5))]
        theirs_before = deepcopy(theirs)
        expected, found = theirs.batch(batch), await ours.abatch(batch)
        for one, other in zip(found, expected, strict=True):
            assert comparable(one, theirs_before) == comparable(other, theirs_before), batch


async def test_an_item_is_stored_changed_and_deleted(store: Store, root: str) -> None:
    """It keeps its time of creation, and labels and keys may be any text."""
    ours, where, key = store[MEMORIES], (root, "a:b{c}*%\n|é "), "k:{é}*\n"
    await ours.aput(where, key, {"n": 1})
    first = await ours.aget(where, key)
    await ours.aput(where, key, {"n": 2})
    second = await ours.aget(where, key)
    assert first is not None
    assert second is not None
    assert (second.namespace, second.key, second.value) == (where, key, {"n": 2})
    assert second.created_at == first.created_at <= first.updated_at < second.updated_at
    assert await ours.alist_namespaces(prefix=(root,)) == [where]
    await ours.adelete(where, key)
    assert await ours.aget(where, key) is None
    assert await ours.alist_namespaces(prefix=(root,)) == []


async def test_search_by_meaning(store: Store, root: str) -> None:
    """The nearest first, by the best of its texts, then items without vectors; in pages, and filtered."""
    ours, where = store[MEMORIES], (root, "notes")
    await ours.abatch(
        [
            PutOp(where, "ab", {"text": "ab", "even": True}),
            PutOp((*where, "below"), "cd", {"text": "zz", "notes": ["ef", "cd"], "even": False}),
            PutOp(where, "gh", {"text": "gh", "even": True}, index=False),
            PutOp(where, "other", {"title": "ab", "even": True}, index=["title"]),
        ]
    )
    found = await ours.asearch(where, query="cd")
    assert found[0].key == "cd"
    assert found[0].score == pytest.approx(1)
    assert found[-1].key == "gh"
    assert found[-1].score is None
    assert {item.key for item in await ours.asearch(where, query="ab", limit=2)} == {"ab", "other"}
    assert [item.key for item in await ours.asearch(where, query="ab", filter={"even": False})] == ["cd"]
    pages = [await ours.asearch(where, query="ab", limit=1, offset=number) for number in range(4)]
    assert sorted(item.key for page in pages for item in page) == ["ab", "cd", "gh", "other"]


async def test_vectors_of_another_model_are_not_compared(server: Valkey, root: str) -> None:
    """After a change of the embedder, items are found without a score until they are written again."""
    async with keyspace.connect(server.url, CATALOGUE, resources={MEMORIES: INDEX}) as before:
        await before[MEMORIES].aput((root,), "a", {"text": "abc"})
    shorter = {"dims": 3, "embed": lambda texts: [[1.0, 2.0, 3.0] for _ in texts]}
    async with keyspace.connect(server.url, CATALOGUE, resources={MEMORIES: shorter}) as after:
        (found,) = await after[MEMORIES].asearch((root,), query="abc")
        assert found.score is None
        await after[MEMORIES].aput((root,), "a", {"text": "abc"})
        (found,) = await after[MEMORIES].asearch((root,), query="abc")
        assert found.score == pytest.approx(1)


async def test_numpy_changes_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """The similarity without numpy is that with it."""
    from ephemera.adapters.langgraph import _memory_items as search

    vectors = search.pack_vectors([[1.0, 0.5, -2.0], [0.0, 0.0, 0.0], [3.0, 1.0, 0.25]])
    with_numpy = search.similarity([1.0, 1.0, 1.0], vectors)
    monkeypatch.setattr(search, "_HAS_NUMPY", False)
    assert search.similarity([1.0, 1.0, 1.0], vectors) == pytest.approx(with_numpy)
    assert search.similarity([1.0, 1.0], vectors) is None
    assert search.similarity([float("nan")] * 3, vectors) is None


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        ({"n": 5}, True),
        ({"n": {"$gt": 4, "$lt": 6}}, True),
        ({"n": {"$gt": 5}}, False),
        ({"day": {"$gte": "2026-01-01"}}, True),
        ({"day": {"$gte": "2027"}}, False),
        ({"none": {"$gt": 1}}, False),
        ({"none": {"$ne": 1}}, True),
        ({"deep.n": 1}, True),
        ({"deep": {"n": 1}}, True),
        ({"deep": {"n": {"$lte": 0}}}, False),
        ({"list": [1, {"a": 2}]}, True),
        ({"list": [1]}, False),
        ({"n.x.y": 1}, False),
    ],
)
async def test_filters(local: Store, root: str, condition: dict[str, Any], passes: bool) -> None:
    """Values are compared as JSON: operators, nested names, lists; what cannot be compared does not pass."""
    value = {"n": 5, "day": "2026-11-18", "deep": {"n": 1}, "list": [1, {"a": 2, "b": 3}]}
    await local[MEMORIES].aput((root,), "a", value)
    assert len(await local[MEMORIES].asearch((root,), filter=condition)) == passes


async def test_a_ttl_is_the_items_own(local: Store, root: str) -> None:
    """Each item expires by itself, a read renews it if asked, and its namespace lives as long as it."""
    ours, where, key = local[FADING], (root,), hash_of(root, declared=FADING)
    await ours.aput(where, "short", {"n": 1}, ttl=1)
    await ours.aput(where, "default", {"n": 2})
    await ours.aput(where, "lasting", {"n": 3}, ttl=None)
    expiries = await expiries_of(local, key)
    now = await local.call("TIME")
    seconds = {name: round(expiry / 1000 - int(now[0])) for name, expiry in expiries.items()}
    assert seconds == {
        "short": pytest.approx(60, abs=30),
        "default": pytest.approx(600, abs=30),
        "lasting": pytest.approx(3600, abs=30),
    }
    assert await local.call("PEXPIRETIME", key) == max(expiries.values())
    await ours.aget(where, "short")
    assert await expiries_of(local, key) == expiries
    for name in ("short", "default"):
        await expire(local, key, name, at=expiries[name] - 1000)
    await ours.aget(where, "short", refresh_ttl=True)
    await ours.asearch(where, filter={"n": 2}, refresh_ttl=True)
    renewed = await expiries_of(local, key)
    assert renewed["short"] >= expiries["short"]
    assert renewed["default"] >= expiries["default"]
    assert renewed["lasting"] == expiries["lasting"]


async def expiries_of(store: Store, key: str) -> dict[str, float]:
    """When the items of a namespace expire, in milliseconds."""
    records = await store.call("HGETALL", key)
    return {name.decode(): struct.unpack(">d", record[:8])[0] for name, record in records.items()}


async def expire(store: Store, key: str, item: str, at: float = 1.0) -> None:
    """Let an item expire then, or have expired long ago."""
    record = await store.call("HGET", key, item)
    await store.call("HSET", key, item, struct.pack(">d", at) + record[8:])


async def test_an_expired_item_is_gone(store: Store, root: str) -> None:
    """No read returns it, its namespace is not listed, a search removes it, and its key starts empty."""
    ours, where, key = store[MEMORIES], (root, "a"), hash_of(root, "a")
    await ours.aput(where, "old", {"n": 1}, ttl=1)
    before = await ours.aget(where, "old")
    await expire(store, key, "old")
    assert await ours.aget(where, "old") is None
    assert await ours.alist_namespaces(prefix=(root,)) == []
    assert await ours.asearch((root,)) == []
    assert await store.call("EXISTS", key) == 0
    await ours.aput(where, "old", {"n": 2})
    after = await ours.aget(where, "old")
    assert before is not None
    assert after is not None
    assert after.created_at > before.created_at


async def test_a_full_namespace_is_refused(local: Store, root: str) -> None:
    """The error says what to do and nothing of the batch is stored; expired items make room."""
    ours, where, key = local[SMALL], (root,), hash_of(root, declared=SMALL)
    await ours.abatch([PutOp(where, f"{number}", {}) for number in range(3)])
    with pytest.raises(InvalidValue, match=r"at most 3 items \(max_items=.*given 4 items"):
        await ours.abatch([PutOp(where, "0", {"new": 1}), PutOp(where, "3", {})])
    assert {item.key: item.value for item in await ours.asearch(where)} == {"0": {}, "1": {}, "2": {}}
    await ours.aput(where, "0", {"new": 1})
    await expire(local, key, "1")
    await ours.aput(where, "3", {})
    assert {item.key for item in await ours.asearch(where)} == {"0", "2", "3"}


async def test_what_redis_holds_is_not_trusted(local: Store, root: str) -> None:
    """Records of any bytes are no items, and labels of any bytes no namespaces; the rest is found."""
    ours, where, key = local[MEMORIES], (root,), hash_of(root)
    await ours.aput(where, "good", {"text": "abc"})
    good = await local.call("HGET", key, "good")
    head, late = good[:36], struct.pack(">d", 1e15)
    spoiled = [
        b"", b"short", b"\xff" * 36, late + good[8:32] + b"\xff\xff\xff\xff" + good[36:],
        head + b"not json .....",
        late + struct.pack(">ddd", 0, 1e300, 1e300) + good[32:], head[:32] + struct.pack(">I", 3) + b'"a"',
        head[:32] + struct.pack(">I", 200_000) + b"[" * 200_000, struct.pack(">d", float("nan")) + good[8:],
        good + b"vectors of no model",
    ]  # fmt: skip
    for number, record in enumerate(spoiled):
        await local.call("HSET", key, f"spoiled{number}", record)
    await local.call("HSET", key, b"\xff\xfe", good)
    index = MEMORIES.namespaces.keyspace.key(parent=root)
    await local.call("ZADD", index, 1e15, b"\xff\xfe", 1e15, b"a.b", 1e15, b"", 1e15, b"missing")
    found = await ours.asearch(where, query="abc")
    assert {item.key for item in found} == {"good", "spoiled9", "\ufffd\ufffd"}
    assert await ours.abatch([GetOp(where, f"spoiled{number}") for number in range(9)]) == [None] * 9
    assert await ours.alist_namespaces(prefix=where) == [where]
    assert local.stats[MEMORIES.keyspace].undecodable > 0


async def test_values_that_cannot_be_stored_are_refused(local: Store, root: str) -> None:
    """Before anything of their batch is: what JSON cannot express, enormous values, and impossible TTLs."""
    ours, where = local[MEMORIES], (root,)
    wrong: list[tuple[Any, float | None, str]] = [
        ({"at": object()}, None, "JSON can express"),
        ({"x": "y" * (5 << 20)}, None, "at most 4 MiB"),
        ({}, 0, "more than 0"),
        ({}, -1, "more than 0"),
        ({}, 61, "at most the declared 60; given 61"),
        ({}, float("nan"), "given nan"),
    ]
    for value, ttl, why in wrong:
        with pytest.raises(InvalidValue, match=why):
            await ours.abatch([PutOp(where, "good", {}), PutOp(where, "bad", value, ttl=ttl)])
    assert await ours.asearch(where) == []
    unknown: Any = "an operation"
    with pytest.raises(InvalidValue, match="given str"):
        await ours.abatch([unknown])
    await ours.aput(where, "a", {"n": 1})
    with pytest.raises(InvalidValue, match=r"\$gte"):
        await ours.asearch(where, filter={"n": {"$like": 1}})


async def test_a_batch_is_few_round_trips(local: Store, root: str) -> None:
    """Twenty puts into a namespace, with the indexes of its labels, are one round trip, and twenty gets."""
    counting = Counting(local.client())
    local._clients["cache"] = counting
    ours, where = local[MEMORIES], (root, "a")
    await ours.abatch([PutOp(where, f"{number}", {}) for number in range(20)])
    assert (counting.commands, counting.trips) == (3, 1)
    await ours.abatch([GetOp(where, f"{number}") for number in range(20)])
    assert (counting.commands, counting.trips) == (4, 2)


def test_synchronous_code_has_the_same_store(blocking: sync.SyncStore, root: str) -> None:
    """All methods, search by meaning included."""
    ours: GraphStore = blocking[MEMORIES]
    ours.put((root, "a"), "k", {"text": "abc"})
    assert ours.search((root,), query="abc")[0].score == pytest.approx(1)
    found = ours.get((root, "a"), "k")
    assert found is not None
    assert found.value == {"text": "abc"}
    assert ours.list_namespaces(prefix=(root,)) == [(root, "a")]
    ours.delete((root, "a"), "k")
    assert ours.get((root, "a"), "k") is None


async def test_nodes_of_both_kinds_use_it(local: Store, root: str) -> None:
    """In an async graph, a synchronous node runs in a thread and uses the same store; the loop may not."""
    ours = local[MEMORIES]

    async def remember(state: State, runtime: Runtime[None]) -> dict[str, Any]:
        assert runtime.store is not None
        await runtime.store.aput((root,), "topic", {"text": state["topic"]})
        return {}

    def recall(state: State, runtime: Runtime[None]) -> dict[str, Any]:
        assert runtime.store is not None
        found = runtime.store.get((root,), "topic")
        assert isinstance(found, Item)
        return {"slides": [found.value["text"]]}

    builder = StateGraph(State)
    builder.add_node(remember)
    builder.add_node(recall)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", "recall")
    made = await builder.compile(store=ours).ainvoke({"topic": "whales", "slides": []})
    assert made["slides"] == ["whales"]
    with pytest.raises(SyncCallInEventLoop, match="begins with `a`"):
        ours.get((root,), "topic")


def test_declarations_that_cannot_work_are_refused() -> None:
    """Wrong fields, lifetimes, TTLs and bounds are refused where they are declared."""
    catalogue, hour = Catalogue("refused-memories"), fixed(hours=1)
    wrong: Any = sliding(days=1)
    with pytest.raises(InvalidDeclaration, match=r"its one field is \{namespace\}"):
        GraphMemories(catalogue, "memory:{user}", lifetime=hour)
    with pytest.raises(InvalidDeclaration, match="memories cannot have the lifetime"):
        GraphMemories(catalogue, "memory:{namespace}", lifetime=wrong)
    with pytest.raises(InvalidDeclaration, match="max_items=0 keeps nothing"):
        GraphMemories(catalogue, "memory:{namespace}", lifetime=hour, max_items=0)
    with pytest.raises(InvalidDeclaration, match="at most the declared 60"):
        GraphMemories(catalogue, "memory:{namespace}", lifetime=hour, ttl={"default_ttl": 90})


async def test_foreign_stores_and_resources_are_refused(server: Valkey) -> None:
    """A store without the catalogue, and a resource that is no configuration."""
    foreign = GraphMemories(Catalogue("foreign-memories"), "foreign:{namespace}", lifetime=fixed(days=1))
    async with keyspace.connect(server.url, CATALOGUE, resources={MEMORIES: embed}) as opened:
        with pytest.raises(UndeclaredKeyspace):
            opened[foreign]
        with pytest.raises(MissingResource, match="index configuration"):
            opened[MEMORIES]
    assert "foreign-memories" in repr(foreign)
