"""Stores with resources, on the clients of a test's own store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ephemera import Store
from ephemera.keyspace import Role

_ROLES: tuple[Role, ...] = ("cache", "queue")


def with_resources(store: Store, resources: Mapping[Any, object]) -> Store:
    """A second store on the same clients, as if opened with `resources=`."""
    return Store({role: store.client(role) for role in _ROLES}, *store.catalogues, resources=resources)
