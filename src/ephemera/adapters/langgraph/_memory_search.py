"""Which memories a search returns: filters of values, and the similarity of vectors."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from langgraph.store.base import Item, MatchCondition, SearchItem

from ephemera.adapters.langgraph._memory_items import Namespace, StoredItem
from ephemera.errors import InvalidValue

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_HAS_NUMPY = find_spec("numpy") is not None


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
