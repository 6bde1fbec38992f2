"""What an audit may find, each kind with its weight, and how one such finding reads.

A kind is what `--fail-on` names. `problem`: something is wrong with the data or will be lost; `warning`: it
will go wrong some day; `note`: worth knowing.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from ephemera.operations.inspect._sampling import Interval

Weight: TypeAlias = Literal["problem", "warning", "note"]

KINDS: dict[str, tuple[Weight, str]] = {
    "unknown": ("problem", "keys that no catalogue declares"),
    "misplaced": ("problem", "keys of a role that this server does not carry"),
    "wrong-type": ("problem", "keys of another type than declared"),
    "no-ttl": ("problem", "keys without an end that should have one"),
    "ttl-above-policy": ("problem", "keys that live longer than declared"),
    "unexpected-ttl": ("warning", "keys that end though declared permanent"),
    "undecodable": ("problem", "values that are not of the declared type and shape"),
    "big-key": ("warning", "keys above 1 MiB"),
    "long-stream": ("problem", "streams longer than declared"),
    "stream-lag": ("note", "consumer groups with undelivered or pending entries"),
    "empty-space": ("note", "declared spaces without keys"),
    "evictable-queue": ("problem", "spaces of role queue that the server may evict"),
    "unevictable-cache": ("warning", "spaces of role cache that the server never evicts"),
    "no-memory-limit": ("warning", "a server with cache spaces and no maxmemory"),
    "memory-full": ("warning", "a server above 90 % of its maxmemory that does not evict"),
    "fragmented": ("warning", "a server whose memory is badly fragmented"),
    "unpersisted-queue": ("problem", "spaces of role queue without an append-only file"),
    "persisted-cache": ("note", "an append-only file for nothing but caches"),
    "persistence-failing": ("problem", "a server that fails to save"),
    "incomplete": ("note", "something was not looked at"),
}
"""Every kind of finding, gravest subjects first: its weight and its meaning."""

WEIGHTS: tuple[Weight, ...] = ("problem", "warning", "note")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as declared; `keys` says of how many keys, as far as a sample can tell."""

    kind: str
    weight: Weight
    message: str
    advice: str = ""
    space: str | None = None
    server: str | None = None
    keys: Interval | None = None
    examples: list[str] = []


def found(
    kind: str,
    message: str,
    advice: str = "",
    *,
    space: str | None = None,
    server: str | None = None,
    keys: Interval | None = None,
    examples: Sequence[str] = (),
) -> Finding:
    """A finding of a kind, with that kind's weight."""
    return Finding(
        kind=kind,
        weight=KINDS[kind][0],
        message=message,
        advice=advice,
        space=space,
        server=server,
        keys=keys,
        examples=list(examples),
    )


def kinds_meant(words: list[str]) -> set[str]:
    """The kinds that words name: kinds, or `problems`, `warnings` (and graver), `any`; else ValueError."""
    meant: set[str] = set()
    for word in words:
        if word in KINDS:
            meant.add(word)
        elif word in _GROUPS:
            meant |= {kind for kind, (weight, _) in KINDS.items() if weight in _GROUPS[word]}
        else:
            raise ValueError(word)
    return meant


_GROUPS: dict[str, tuple[Weight, ...]] = {
    "problems": ("problem",),
    "warnings": ("problem", "warning"),
    "any": WEIGHTS,
}
