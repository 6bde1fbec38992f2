"""LangGraph's store of long-term memories: namespaces, lifetimes, filters, and search by meaning."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, cast

import msgspec
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    validate_op_namespace,
)

from ephemera.adapters._expiring_index import ExpiringIndex
from ephemera.adapters._store_access import AsyncAccess, BlockingAccess, StoreAccess
from ephemera.adapters.langgraph._memory_items import (
    MAX_VALUE,
    Change,
    MemoryItems,
    Namespace,
    matches,
    matches_namespace,
    pack_vectors,
    ranked,
)
from ephemera.blocking import BlockingStore
from ephemera.errors import InvalidDeclaration, InvalidValue, MissingResource
from ephemera.keyspace import Catalogue, Fixed, Role, Store, check_declaration

_MINUTE = 60_000  # milliseconds; LangGraph's TTLs are in minutes


def ttl_milliseconds(minutes: float | None, lifetime: int) -> int:
    """A TTL in milliseconds, 0 for none; `InvalidValue` if it is not positive, or above the lifetime."""
    if minutes is None:
        return 0
    if not 0 < minutes * _MINUTE <= lifetime:
        raise InvalidValue(
            "ttl", f"minutes, more than 0 and at most the declared {lifetime / _MINUTE:g}", repr(minutes)
        )
    return max(1, round(minutes * _MINUTE))


class _Embedded(NamedTuple):
    """The vectors that a batch needs, by text."""

    documents: Mapping[str, Sequence[float]]
    queries: Mapping[str, Sequence[float]]


class GraphStore(BaseStore):
    """LangGraph's store: pass it to `compile`, or use it in nodes as `runtime.store`.

    In a batch, all reads see the state before it; of several puts of one item the last counts, and the puts
    into one namespace are one step.

    Args:
        items: Where items are stored.
        access: The store, for callers of both kinds.
        lifetime: How long an item without a TTL lives, in milliseconds, and the longest TTL.
        index: LangGraph's configuration of search by meaning, if there is any.
        ttl: LangGraph's TTL configuration.

    """

    supports_ttl = True

    def __init__(
        self,
        items: MemoryItems,
        access: StoreAccess,
        *,
        lifetime: int,
        index: IndexConfig | None,
        ttl: TTLConfig | None,
    ) -> None:
        self._items = items
        self._access = access
        self._lifetime = lifetime
        self.ttl_config = ttl
        self.index_config = index
        self.embeddings: Embeddings | None = ensure_embeddings(index["embed"]) if index else None
        self._fields = list((index or {}).get("fields") or ["$"])

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations for synchronous code."""
        ops = _checked(ops)
        texts, queries = self._texts(ops), self._queries(ops)
        vectors = self.embeddings.embed_documents(texts) if self.embeddings and texts else []
        embedded = _Embedded(
            dict(zip(texts, vectors, strict=True)),
            {query: self.embeddings.embed_query(query) for query in queries} if self.embeddings else {},
        )
        return self._access.wait(self._execute(ops, embedded))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations."""
        ops = _checked(ops)
        texts, queries = self._texts(ops), self._queries(ops)
        embeddings = self.embeddings
        vectors = await embeddings.aembed_documents(texts) if embeddings and texts else []
        asked = [embeddings.aembed_query(query) for query in queries] if embeddings else []
        embedded = _Embedded(
            dict(zip(texts, vectors, strict=True)),
            dict(zip(queries, await asyncio.gather(*asked), strict=False)),
        )
        return await self._access.run(self._execute(ops, embedded))

    def _texts(self, ops: Sequence[Op]) -> list[str]:
        puts = [op for op in ops if isinstance(op, PutOp)]
        return list(dict.fromkeys(text for op in puts for text in self._texts_of(op)))

    def _texts_of(self, op: PutOp) -> list[str]:
        if self.embeddings is None or op.value is None or op.index is False:
            return []
        paths = self._fields if op.index is None else op.index
        return [text for path in paths for text in get_text_at_path(op.value, path) if text]

    def _queries(self, ops: Sequence[Op]) -> list[str]:
        return list(dict.fromkeys(op.query for op in ops if isinstance(op, SearchOp) and op.query))

    async def _execute(self, ops: Sequence[Op], embedded: _Embedded) -> list[Result]:
        changes = self._changes(ops, embedded)  # refuses what cannot be stored before anything is sent
        results: list[Result] = [None] * len(ops)
        reads: list[Coroutine[Any, Any, None]] = self._gets(ops, results)
        for at, op in enumerate(ops):
            if isinstance(op, SearchOp):
                reads.append(self._search(op, embedded.queries.get(op.query or ""), results, at))
            elif isinstance(op, ListNamespacesOp):
                reads.append(self._list_namespaces(op, results, at))
        await asyncio.gather(*reads)
        await asyncio.gather(
            *(self._items.put(namespace, new.values()) for namespace, new in changes.items())
        )
        return results

    def _changes(self, ops: Sequence[Op], embedded: _Embedded) -> dict[Namespace, dict[str, Change]]:
        changes: defaultdict[Namespace, dict[str, Change]] = defaultdict(dict)
        for op in ops:
            if isinstance(op, PutOp):
                vectors = [embedded.documents[text] for text in self._texts_of(op)]
                value = None if op.value is None else _encoded(op)
                ttl = ttl_milliseconds(op.ttl, self._lifetime)
                changes[tuple(op.namespace)][op.key] = Change(op.key, value, ttl, pack_vectors(vectors))
        return changes

    def _gets(self, ops: Sequence[Op], results: list[Result]) -> list[Coroutine[Any, Any, None]]:
        wanted: defaultdict[tuple[Namespace, bool], list[int]] = defaultdict(list)
        for at, op in enumerate(ops):
            if isinstance(op, GetOp):
                wanted[tuple(op.namespace), op.refresh_ttl].append(at)

        async def get(namespace: Namespace, refresh: bool, places: Sequence[int]) -> None:
            keys = [cast("GetOp", ops[at]).key for at in places]
            found = await self._items.get(namespace, keys, refresh=refresh)
            for at, item in zip(places, found, strict=True):
                results[at] = item

        return [get(*read, places) for read, places in wanted.items()]

    async def _search(
        self, op: SearchOp, query: Sequence[float] | None, results: list[Result], at: int
    ) -> None:
        namespaces = self._items.below(tuple(op.namespace_prefix))
        read = self._items.read(namespaces, with_vectors=query is not None)
        found = ranked([each async for each in read if matches(each.item.value, op.filter)], query)
        page = found[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            await self._refresh([item for stored, item in page if stored.has_ttl])
        results[at] = [item for _, item in page]

    async def _refresh(self, items: Iterable[SearchItem]) -> None:
        keys: defaultdict[Namespace, list[str]] = defaultdict(list)
        for item in items:
            keys[item.namespace].append(item.key)
        await asyncio.gather(*(self._items.get(where, names, refresh=True) for where, names in keys.items()))

    async def _list_namespaces(self, op: ListNamespacesOp, results: list[Result], at: int) -> None:
        conditions, found = op.match_conditions or (), set[Namespace]()
        async for page in self._items.below(_literal_prefix(op)):
            matching = [each for each in page if matches_namespace(each, conditions)]
            found.update(each[: op.max_depth] for each in await self._items.existing(matching))
        results[at] = sorted(found)[op.offset : op.offset + op.limit]


def _checked(ops: Iterable[Op]) -> list[Op]:
    checked = list(ops)
    for op in checked:
        if not isinstance(op, (GetOp, PutOp, SearchOp, ListNamespacesOp)):
            raise InvalidValue("batch", "GetOp, PutOp, SearchOp and ListNamespacesOp", type(op).__name__)
        validate_op_namespace(op)
    return checked


def _encoded(op: PutOp) -> bytes:
    with suppress(TypeError, ValueError, RecursionError):
        data = msgspec.json.encode(dict(op.value or {}))
        if len(data) <= MAX_VALUE:
            return data
    raise InvalidValue(
        f"the item {op.key!r} of {op.namespace}",
        f"a value that JSON can express, of at most {MAX_VALUE >> 20} MiB",
        "another",
    )


def _literal_prefix(op: ListNamespacesOp) -> Namespace:
    """What all namespaces that match begin with."""
    literal: list[str] = []
    for kind, path in op.match_conditions or ():
        if kind == "prefix" and not literal:
            for label in path:
                if label == "*":
                    break
                literal.append(label)
    return tuple(literal)


class GraphMemories:
    """The memories of graphs: `store[MEMORIES]` is the store for `compile(store=...)`.

    Search by meaning needs LangGraph's index configuration: `connect(...,
    resources={MEMORIES: {"dims": 384, "embed": embed}})`.

    Args:
        catalogue: Where the keys are declared.
        pattern: The key pattern of a namespace; its one field is `{namespace}`.
        lifetime: How long an item without a TTL of its own is kept after its last change.
        ttl: LangGraph's TTL configuration: `default_ttl` of items in minutes, `refresh_on_read`.
        max_items: How many items a namespace may have; a search reads them all.
        role: The server's role; `queue` for memories that must not be evicted.
        purpose: What the memories are for, for the documentation of the catalogue.
        if_lost: What is lost with a namespace, for the documentation of the catalogue.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        *,
        lifetime: Fixed,
        ttl: TTLConfig | None = None,
        max_items: int = 10_000,
        role: Role = "cache",
        purpose: str = "What graphs remember in a namespace",
        if_lost: str = "it is forgotten",
    ) -> None:
        check_declaration(catalogue, pattern)
        _check(pattern, lifetime, ttl, max_items)
        self._ttl = ttl
        self._max_items = max_items
        self.keyspace = catalogue.mapping(
            pattern,
            bytes,
            lifetime=replace(lifetime, outlives=lifetime.outlives or "a change, which renews it"),
            role=role,
            purpose=purpose,
            invalidated_by=("a deletion",),
            if_lost=if_lost,
            sensitive=True,
        )
        self.namespaces = ExpiringIndex(
            catalogue,
            f"namespaces:{pattern.replace('{namespace}', '{parent}')}",
            lifetime=replace(lifetime, milliseconds=2 * lifetime.milliseconds),
            role=role,
            purpose="The namespaces below one, by label",
            if_lost="a search from above finds a namespace only when it has been written again",
        )

    def bind(self, store: Store) -> GraphStore:
        """The memories of a store."""
        store[self.keyspace]  # refuses a store without the catalogue
        return self._bound(AsyncAccess(store), store)

    def bind_sync(self, store: BlockingStore) -> GraphStore:
        """The memories of a synchronous store, for any thread or event loop, and after a fork."""
        return self._bound(BlockingAccess(store), store.aio)

    def _bound(self, access: StoreAccess, store: Store) -> GraphStore:
        items = MemoryItems(self.keyspace, self.namespaces, self._max_items, access)
        try:
            index = store.resource(self, "LangGraph's index configuration, a dictionary", dict)
        except MissingResource as problem:
            if problem.given is not None:
                raise
            index = None
        lifetime = cast("int", self.keyspace.lifetime.milliseconds)
        return GraphStore(items, access, lifetime=lifetime, index=index, ttl=self._ttl)

    def __repr__(self) -> str:
        return f"<GraphMemories {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


def _check(pattern: str, lifetime: Fixed, ttl: TTLConfig | None, max_items: int) -> None:
    if pattern.count("{") != 1 or "{namespace}" not in pattern:
        raise InvalidDeclaration(pattern, "its one field is {namespace}", "as in memory:{namespace}")
    if not isinstance(cast("Any", lifetime), Fixed):
        raise InvalidDeclaration(
            pattern, f"memories cannot have the lifetime {lifetime}", "use a fixed one, as in fixed(days=90)"
        )
    if type(max_items) is not int or max_items < 1:
        raise InvalidDeclaration(pattern, f"max_items={max_items!r} keeps nothing", "use a positive number")
    try:
        ttl_milliseconds((ttl or {}).get("default_ttl"), lifetime.milliseconds)
    except InvalidValue as problem:
        raise InvalidDeclaration(pattern, str(problem), "or declare a longer lifetime") from None
