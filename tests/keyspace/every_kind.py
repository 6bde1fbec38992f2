"""A keyspace of every kind and lifetime, with an operation of each sort, for tests that must hold for all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from ephemera.keyspace import Catalogue, Keyspace, Lifetime, fixed, permanent, sliding, until, windowed


class Session(msgspec.Struct):
    user: str
    visits: int = 0
    roles: list[str] = []


ANN = Session("ann", 1, ["admin"])
BOB = Session("bob")

TTL = 3_600_000
"""The TTL of the keys of all expiring keyspaces here, in milliseconds."""

LIFETIMES: dict[str, Lifetime] = {
    "fixed": fixed(hours=1),
    "sliding": sliding(hours=1),
    "windowed": windowed(every=timedelta(minutes=1), keep=timedelta(hours=1)),
    "until": until(),
    "permanent": permanent(reason="a test"),
}
KINDS = ("hash", "mapping", "value", "counter", "flag", "set", "sorted_set", "list", "stream")

catalogue = Catalogue("test")


def _declare(kind: str, name: str) -> Keyspace[Any]:
    held = {"hash": Session, "stream": Session, "value": Session, "mapping": int}
    types: list[Any] = [] if kind in ("counter", "flag") else [held.get(kind, str)]
    pattern = f"test:{kind}:{name}:{{id}}"
    declared: Keyspace[Any] = getattr(catalogue, kind)(
        pattern, *types, lifetime=LIFETIMES[name], purpose="a test"
    )
    return declared


KEYSPACES = {(kind, name): _declare(kind, name) for kind in KINDS for name in LIFETIMES}


class Operations(NamedTuple):
    """The operations of a kind of key; None where it has no operation of that sort."""

    write: Callable[..., Awaitable[Any]]
    put: Callable[..., Awaitable[Any]] | None
    change: Callable[..., Awaitable[Any]] | None
    read: Callable[..., Awaitable[Any]]


OPERATIONS: dict[str, Operations] = {
    "hash": Operations(
        lambda a, **f: a.put(ANN, **f),
        lambda a, **f: a.put(BOB, **f),
        lambda a, **f: a.update({"visits": 2}, **f),
        lambda a, **f: a.get(**f),
    ),
    "mapping": Operations(
        lambda a, **f: a.set({"x": 1}, **f),
        lambda a, **f: a.put({"y": 2}, **f),
        lambda a, **f: a.increment("x", **f),
        lambda a, **f: a.get_all(**f),
    ),
    "value": Operations(
        lambda a, **f: a.put(ANN, **f),
        lambda a, **f: a.put(BOB, **f),
        None,
        lambda a, **f: a.get(**f),
    ),
    "counter": Operations(
        lambda a, **f: a.add(**f), None, lambda a, **f: a.add(2, **f), lambda a, **f: a.get(**f)
    ),
    "flag": Operations(
        lambda a, **f: a.set(**f), lambda a, **f: a.set(**f), None, lambda a, **f: a.is_set(**f)
    ),
    "set": Operations(
        lambda a, **f: a.add("x", **f), None, lambda a, **f: a.add("y", **f), lambda a, **f: a.members(**f)
    ),
    "sorted_set": Operations(
        lambda a, **f: a.add({"x": 1}, **f),
        None,
        lambda a, **f: a.increment("x", 1, **f),
        lambda a, **f: a.range(0, -1, **f),
    ),
    "list": Operations(
        lambda a, **f: a.push("x", **f), None, lambda a, **f: a.push("y", **f), lambda a, **f: a.range(**f)
    ),
    "stream": Operations(
        lambda a, **f: a.append(ANN, **f),
        None,
        lambda a, **f: a.append(BOB, **f),
        lambda a, **f: a.range(**f),
    ),
}
