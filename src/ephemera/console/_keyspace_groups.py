"""Keyspaces grouped by the pattern that declares them: an index, a claim or a marker is not a row of its own.

A pattern such as a cache declares several keyspaces: its entries, the claims of callers that load one, the
channel that announces a loaded one. Each catalogue lists its patterns, and the keyspaces are found in their
attributes. A pattern that is part of another, as the lock of a planner is, belongs to that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ephemera.keyspace import Catalogue, Keyspace

_PATTERNS = "ephemera.patterns."


@dataclass(frozen=True)
class KeyspaceGroup:
    """One keyspace that a service declares itself, or all keyspaces of one pattern."""

    main: Keyspace[Any]
    """The one that the group is named after."""
    keyspaces: tuple[Keyspace[Any], ...]
    """All of them, in the order of the catalogue."""
    kind: str
    """The kind of the keyspace, or the name of the pattern: `rate limits`."""


def keyspace_groups(catalogue: Catalogue) -> list[KeyspaceGroup]:
    """All keyspaces of a catalogue, in its order, those of a pattern together."""
    found = [
        (pattern, [each for each in _keyspaces(pattern, set()) if each in catalogue])
        for pattern in catalogue.patterns
    ]
    groups: list[KeyspaceGroup] = []
    grouped: set[str] = set()
    for pattern, members in sorted(found, key=lambda each: -len(each[1])):  # the outermost pattern first
        left = {each.pattern for each in members} - grouped
        if left:
            grouped |= left
            groups.append(_group(pattern, tuple(each for each in catalogue if each.pattern in left)))
    groups += [KeyspaceGroup(each, (each,), each.kind) for each in catalogue if each.pattern not in grouped]
    order = {each.pattern: position for position, each in enumerate(catalogue)}
    return sorted(groups, key=lambda group: min(order[each.pattern] for each in group.keyspaces))


def _group(pattern: object, keyspaces: tuple[Keyspace[Any], ...]) -> KeyspaceGroup:
    named = getattr(pattern, "keyspace", None)
    stored = next((each for each in keyspaces if each.kind != "channel"), keyspaces[0])
    kind = re.sub("(?<=[a-z])(?=[A-Z])", " ", type(pattern).__name__).lower()
    return KeyspaceGroup(named if named in keyspaces else stored, keyspaces, kind)


def _keyspaces(found: object, seen: set[int]) -> Iterator[Keyspace[Any]]:
    """The keyspaces in the attributes of a pattern, and of the patterns in them."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, Keyspace):
        yield found
    for part in _parts(found):
        yield from _keyspaces(part, seen)


def _parts(found: object) -> Iterable[object]:
    if isinstance(found, Mapping):
        return list(found.values())
    if isinstance(found, (list, tuple, set, frozenset)):
        return list(found)
    if isinstance(found, Keyspace) or not type(found).__module__.startswith(_PATTERNS):
        return ()
    slots = [name for cls in type(found).__mro__ for name in getattr(cls, "__slots__", ())]
    return [*getattr(found, "__dict__", {}).values(), *(getattr(found, name, None) for name in slots)]
