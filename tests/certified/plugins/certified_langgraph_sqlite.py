"""Puts our store in the place of LangGraph's on SQLite: each file or `:memory:` has namespaces of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any

from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

from ephemera import Catalogue, connect, fixed, sync
from ephemera.adapters.langgraph import GraphMemories, GraphStore

URL = os.environ["CERTIFIED_URL"]
_numbers = count()


def _declared(index: Any, ttl: Any) -> tuple[Catalogue, GraphMemories, dict[Any, Any]]:
    catalogue = Catalogue(f"certified{next(_numbers)}")
    pattern = f"{catalogue.name}:{{namespace}}"
    declared = GraphMemories(catalogue, pattern, lifetime=fixed(hours=1), ttl=ttl)
    named = {**index, "fields": index.get("fields") or index.get("text_fields")} if index else None
    return catalogue, declared, {declared: named} if named else {}


class _Sync:
    """What their synchronous stores have and ours need not."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def setup(self) -> None:
        """Do nothing: there are no tables."""

    def sweep_ttl(self) -> int:
        """Do nothing: what has expired is not there."""
        return 0

    start_ttl_sweeper = stop_ttl_sweeper = sweep_ttl


class _Async(_Sync):
    """The same of their async ones."""

    async def setup(self) -> None:  # type: ignore[override]
        """Do nothing: there are no tables."""

    async def sweep_ttl(self) -> int:  # type: ignore[override]
        """Do nothing: what has expired is not there."""
        return 0

    start_ttl_sweeper = stop_ttl_sweeper = sweep_ttl  # type: ignore[assignment]


@contextmanager
def _opened(_: str, *, index: Any = None, ttl: Any = None) -> Iterator[_Sync]:
    catalogue, declared, resources = _declared(index, ttl)
    with sync.connect(URL, catalogue, resources=resources) as store:
        yield _Sync(store[declared])


@asynccontextmanager
async def _opened_async(_: str, *, index: Any = None, ttl: Any = None) -> AsyncIterator[_Async]:
    catalogue, declared, resources = _declared(index, ttl)
    async with connect(URL, catalogue, resources=resources) as store:
        yield _Async(store[declared])


SqliteStore.from_conn_string = staticmethod(_opened)
AsyncSqliteStore.from_conn_string = staticmethod(_opened_async)
