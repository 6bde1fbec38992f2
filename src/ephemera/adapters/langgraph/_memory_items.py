"""Where memories are stored, and which of them a search returns.

A namespace such as `("users", "7", "notes")` has one hash of its items, so an operation on it is one script,
and it is complete or absent. The indexes are a tree: the one of `("users",)` lists `7`. They find the
namespaces below a prefix without reading any other. An index lists at least what exists (`ExpiringIndex`). A
search compares values with its filters, and vectors by their similarity.
"""

from __future__ import annotations

import asyncio
import logging
import math
import operator
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from time import monotonic
from typing import Any, NamedTuple

import msgspec
from langgraph.store.base import Item, MatchCondition, SearchItem

from ephemera._bounded_cache import BoundedCache
from ephemera.adapters._expiring_index import ExpiringIndex
from ephemera.adapters._store_access import StoreAccess
from ephemera.errors import InvalidValue
from ephemera.keyspace import DECODE_ERRORS, Keyspace, MappingAccessor
from ephemera.wire import Arg, Script

Namespace = tuple[str, ...]

MAX_VALUE = 4 * 1024 * 1024
"""The longest value in bytes that is stored or decoded."""

_PACKAGE = "ephemera.adapters.langgraph"
_HEAD = struct.Struct(">ddddI")  # as in lua/memory.lua
_AT_ONCE = 100  # namespaces that a search reads at a time
_REMEMBERED = 10_000  # namespaces that this process knows to be in their indexes
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_log = logging.getLogger("ephemera.langgraph")

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_HAS_NUMPY = find_spec("numpy") is not None


def _memory_script(verb: str, *, is_fast: bool = True) -> Script:
    return Script.load(_PACKAGE, f"memory_{verb}", shared=(f"{_PACKAGE}:memory",), is_fast=is_fast)


_PUT, _GET, _EXISTS = map(_memory_script, ("put", "get", "exists"))
_READ = _memory_script("read", is_fast=False)  # of thousands of items


class Change(NamedTuple):
    """An item to store, or to delete if it has no value."""

    key: str
    value: bytes | None
    ttl: int = 0
    """In milliseconds; 0 for the declared lifetime."""
    vectors: bytes = b""

    def arguments(self) -> tuple[Arg, ...]:
        """Its part of the arguments of `memory_put.lua`."""
        return self.key, "delete" if self.value is None else self.ttl, self.value or b"", self.vectors


class StoredItem(NamedTuple):
    """An item that was read."""

    item: Item
    has_ttl: bool
    vectors: bytes


class MemoryItems:
    """The items of one store."""

    def __init__(
        self,
        keyspace: Keyspace[MappingAccessor[bytes]],
        children: ExpiringIndex,
        max_items: int,
        access: StoreAccess,
    ) -> None:
        self._keyspace = keyspace
        self._children = children
        self._max_items = max_items
        self._access = access
        self._lifetime = keyspace.lifetime.milliseconds or 0
        self._renewed: BoundedCache[Namespace, float] = BoundedCache(_REMEMBERED)

    async def put(self, namespace: Namespace, changes: Iterable[Change]) -> None:
        """Store and delete items of a namespace, in one step."""
        arguments = [part for change in changes for part in change.arguments()]
        work = [self._run(_PUT, namespace, self._lifetime, self._max_items, *arguments)]
        if set(arguments[1::4]) != {"delete"}:
            work.append(self._add_to_indexes(namespace))
        count, *_ = await asyncio.gather(*work)  # in one round trip
        self._stats.writes += len(arguments) // 4
        if count:
            raise InvalidValue(
                f"the namespace {namespace}",
                f"at most {self._max_items} items (max_items=, or use more namespaces)",
                f"{count} items",
            )

    async def get(self, namespace: Namespace, keys: Sequence[str], *, refresh: bool) -> list[Item | None]:
        """Items of a namespace, None for one that does not exist; `refresh` starts their TTLs again."""
        records = await self._run(_GET, namespace, int(refresh), *keys)
        found = [self._decoded(namespace, *each) for each in zip(keys, records, strict=True)]
        if refresh and any(each is not None and each.has_ttl for each in found):
            await self._renew_indexes(namespace)
        hits = sum(each is not None for each in found)
        self._stats.hits += hits
        self._stats.misses += len(found) - hits
        return [each.item if each is not None else None for each in found]

    async def read(
        self, namespaces: AsyncIterator[list[Namespace]], *, with_vectors: bool
    ) -> AsyncIterator[StoredItem]:
        """All items of these namespaces."""
        async for page in namespaces:
            replies = await asyncio.gather(*(self._run(_READ, each, int(with_vectors)) for each in page))
            for namespace, reply in zip(page, replies, strict=True):
                for key, record in zip(reply[::2], reply[1::2], strict=True):
                    found = self._decoded(namespace, key.decode(errors="replace"), record)
                    if found is not None:
                        yield found

    async def below(self, prefix: Namespace) -> AsyncIterator[list[Namespace]]:
        """The namespaces that begin with a prefix, level by level, and some that no longer exist."""
        level = [prefix]
        while level:
            for start in range(0, len(level), _AT_ONCE):
                yield [namespace for namespace in level[start : start + _AT_ONCE] if namespace]
            level = [child for each in level for child in await self._children_of(each)]

    async def existing(self, namespaces: Sequence[Namespace]) -> list[Namespace]:
        """Those of these namespaces that have items."""
        exist = await asyncio.gather(*(self._run(_EXISTS, each) for each in namespaces))
        return [namespace for namespace, there in zip(namespaces, exist, strict=True) if there]

    async def _children_of(self, namespace: Namespace) -> list[Namespace]:
        names: set[str] = set()
        async for page in self._children.names(self._access.store, parent=".".join(namespace)):
            names.update(name for name in page if name and "." not in name)
        return [(*namespace, name) for name in sorted(names)]

    async def _add_to_indexes(self, namespace: Namespace) -> None:
        store = self._access.store
        await asyncio.gather(
            *(
                self._children.add(store, [name], parent=".".join(namespace[:depth]))
                for depth, name in enumerate(namespace)
            )
        )
        self._renewed[namespace] = monotonic() + self._lifetime / 3000

    async def _renew_indexes(self, namespace: Namespace) -> None:
        """Renew the entries of a namespace that lives on by being read."""
        if monotonic() >= self._renewed.get(namespace, 0.0):
            await self._add_to_indexes(namespace)

    async def _run(self, script: Script, namespace: Namespace, /, *arguments: Arg) -> Any:
        client = self._access.store.client(self._keyspace.role)
        key = self._keyspace.key(namespace=".".join(namespace))
        with self._stats.counting_errors:
            return await client.run(script, (key,), arguments)

    def _decoded(self, namespace: Namespace, key: str, record: bytes | None) -> StoredItem | None:
        """The item of a record; None if there is none, or it cannot be decoded."""
        if record is None:
            return None
        try:
            return _decoded(namespace, key, record)
        except (*DECODE_ERRORS, struct.error, OverflowError, OSError) as problem:
            self._stats.undecodable += 1
            _log.warning("an item of %r cannot be decoded: %s", self._keyspace, problem)
            return None

    @property
    def _stats(self) -> Any:
        return self._access.store[self._keyspace].stats


def _decoded(namespace: Namespace, key: str, record: bytes) -> StoredItem:
    _, ttl, created, changed, length = _HEAD.unpack_from(record)
    end = _HEAD.size + length
    if length > MAX_VALUE or end > len(record):
        raise ValueError(f"a value of {length} bytes in a record of {len(record)}")
    item = Item(
        value=_decode(record[_HEAD.size : end]),
        key=key,
        namespace=namespace,
        created_at=datetime.fromtimestamp(created / 1e6, UTC),
        updated_at=datetime.fromtimestamp(changed / 1e6, UTC),
    )
    return StoredItem(item, ttl > 0, record[end:])


def matches(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether a value passes a filter; a name with dots is one of a nested value, if there is none of it."""
    return all(_compare(_at(value, name), condition) for name, condition in (wanted or {}).items())


def _at(value: Mapping[str, Any], name: str) -> Any:
    if name in value:
        return value[name]
    found: Any = value
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _compare(value: Any, condition: Any) -> bool:
    if isinstance(condition, Mapping):
        if any(name.startswith("$") for name in condition):
            return all(_apply(value, name, operand) for name, operand in condition.items())
        return isinstance(value, Mapping) and all(
            _compare(value.get(name), nested) for name, nested in condition.items()
        )
    if isinstance(condition, (list, tuple)):
        return (
            isinstance(value, list) and len(value) == len(condition) and all(map(_compare, value, condition))
        )
    return bool(value == condition)


def _apply(value: Any, name: str, operand: Any) -> bool:
    if name == "$eq":
        return bool(value == operand)
    if name == "$ne":
        return bool(value != operand)
    if name not in _ORDER:
        raise InvalidValue("filter", f"the operators $eq, $ne, {', '.join(_ORDER)}", name)
    try:
        return _ORDER[name](float(value), float(operand))
    except (TypeError, ValueError, OverflowError):  # no numbers: only texts have an order, too
        return isinstance(value, str) and isinstance(operand, str) and _ORDER[name](value, operand)


def matches_namespace(namespace: Namespace, conditions: Iterable[MatchCondition]) -> bool:
    """Whether a namespace has these beginnings and ends, where `*` is any label."""
    return all(_matches_path(namespace, *condition) for condition in conditions)


def _matches_path(namespace: Namespace, kind: str, path: Sequence[str]) -> bool:
    if kind not in ("prefix", "suffix"):
        raise InvalidValue("match_type", "prefix or suffix", repr(kind))
    if len(namespace) < len(path):
        return False
    labels = namespace[: len(path)] if kind == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, labels, strict=True))


def ranked(found: Iterable[StoredItem], query: Sequence[float] | None) -> list[tuple[StoredItem, SearchItem]]:
    """Items by similarity to a query, then those without vectors; without a query the newest first."""
    scored = [(each, None if query is None else similarity(query, each.vectors)) for each in found]
    scored.sort(key=lambda pair: (pair[0].item.namespace, pair[0].item.key))
    scored.sort(key=lambda pair: pair[0].item.updated_at, reverse=True)
    scored.sort(key=lambda pair: -math.inf if pair[1] is None else pair[1], reverse=True)
    return [(each, _search_item(each.item, score)) for each, score in scored]


def _search_item(item: Item, score: float | None) -> SearchItem:
    return SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)


def pack_vectors(vectors: Iterable[Sequence[float]]) -> bytes:
    """Vectors as they are stored: 32-bit floats, little-endian."""
    return b"".join(struct.pack(f"<{len(vector)}f", *vector) for vector in vectors)


def similarity(query: Sequence[float], vectors: bytes) -> float | None:
    """The cosine similarity to the nearest of these vectors; None if none can be compared."""
    size = 4 * len(query)
    if not size or not vectors or len(vectors) % size:  # none, or of another model
        return None
    best = _nearest(query, vectors) if _HAS_NUMPY else _nearest_plain(query, vectors)
    return best if math.isfinite(best) else None


def _nearest(query: Sequence[float], vectors: bytes) -> float:
    import numpy as np

    rows = np.frombuffer(vectors, "<f4").reshape(-1, len(query)).astype(float)
    wanted = np.asarray(query, float)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(wanted)
    return float(np.max(np.divide(rows @ wanted, lengths, out=np.zeros(len(rows)), where=lengths > 0)))


def _nearest_plain(query: Sequence[float], vectors: bytes) -> float:
    size, best = 4 * len(query), -math.inf
    for start in range(0, len(vectors), size):
        row = struct.unpack(f"<{len(query)}f", vectors[start : start + size])
        length = math.hypot(*row) * math.hypot(*query)
        best = max(best, sum(map(operator.mul, row, query)) / length if length else 0.0)
    return best
