"""Puts our store in the place of LangGraph's in-memory one, each with namespaces of its own."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

from langgraph.store import memory

from ephemera import Catalogue, fixed, sync
from ephemera.adapters.langgraph import GraphMemories, GraphStore

_numbers = count()
_stores: list[sync.SyncStore] = []


class InMemoryStore(GraphStore):
    """Ours, made as theirs is."""

    def __init__(self, *, index: Any = None) -> None:
        catalogue = Catalogue(f"certified{next(_numbers)}")
        declared = GraphMemories(catalogue, f"{catalogue.name}:{{namespace}}", lifetime=fixed(hours=1))
        resources = {declared: index} if index else {}
        store = sync.connect(os.environ["CERTIFIED_URL"], catalogue, resources=resources)
        _stores.append(store)
        self.__dict__.update(store[declared].__dict__)


memory.InMemoryStore = InMemoryStore  # type: ignore[misc,assignment]


def pytest_runtest_teardown() -> None:
    """Close what a test has opened."""
    while _stores:
        _stores.pop().close()
