"""The declaration of memories: what `store[MEMORIES]` is, and what may be declared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from langgraph.store.base import TTLConfig

from ephemera.adapters._expiring_index import ExpiringIndex
from ephemera.adapters._store_access import AsyncAccess, BlockingAccess, StoreAccess
from ephemera.adapters.langgraph._graph_store import GraphStore, ttl_milliseconds
from ephemera.adapters.langgraph._memory_items import MemoryItems
from ephemera.blocking import BlockingStore
from ephemera.errors import InvalidDeclaration, InvalidValue, MissingResource
from ephemera.keyspace import Catalogue, Fixed, Role, Store, check_declaration


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
