"""A server compared with the roles of the keys found on it, and what to set so that they fit.

Role `cache` needs a memory limit, eviction and no persistence; role `queue` needs the opposite. All advice
comes from one decision, `_policy`, so that no piece of it contradicts another: on a server with a queue, or
with keys of unknown purpose that have no TTL, `allkeys-*` is never recommended. Where no setting serves
all keys, the advice is a server for each role; `ephemera server-config` writes its configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ephemera.keyspace import Keyspace, Permanent, Role
from ephemera.operations.audit._report import Finding, make_finding
from ephemera.operations.formatting import format_count, format_size
from ephemera.operations.survey import ServerInfo

_NAMED = 3  # keyspaces that a message names
_NEARLY_FULL = 0.9
_FRAGMENTED = 1.5  # resident memory by used memory
_FRAGMENTATION_COST = 64 * 1024 * 1024  # bytes that fragmentation must cost to be reported
_MEMORY_STEP = 64 * 1024 * 1024
_SEPARATE = (
    "no policy suits both: give role queue a server of its own, connect(..., queue_url=...)",
    ["ephemera server-config --role queue > queue.conf", "ephemera server-config --role cache > cache.conf"],
)


class KeyUse(msgspec.Struct, frozen=True):
    """What matters of keys to the server that holds them; role None: unknown."""

    pattern: str
    role: Role | None
    permanent: bool  # some have no TTL


def server_findings(
    server: ServerInfo, keyspaces: Sequence[Keyspace[Any]], undeclared: Sequence[KeyUse] = ()
) -> Iterator[Finding]:
    """The deviations of a server that holds keys of these keyspaces, and undeclared ones of these uses."""
    declared = (KeyUse(each.pattern, each.role, isinstance(each.lifetime, Permanent)) for each in keyspaces)
    uses = [*declared, *undeclared]
    yield from _eviction(server, uses)
    yield from _persistence(server, uses)
    yield from _memory(server)


def _policy(uses: Sequence[KeyUse]) -> str | None:
    """The eviction policy that suits all of these keys; None when there is none."""
    kept = [use for use in uses if use.role == "queue" or (use.role is None and use.permanent)]
    caches = [use for use in uses if use.role == "cache"]
    if not kept:
        return "allkeys-lru"
    if not caches:
        return "noeviction"
    separable = all(use.permanent for use in kept) and not any(use.permanent for use in caches)
    return "volatile-lru" if separable else None


def _advice(uses: Sequence[KeyUse], *before: str) -> tuple[str, list[str]]:
    """What to do about eviction, and the commands."""
    policy = _policy(uses)
    if policy is None:
        return _SEPARATE
    reasons = {
        "allkeys-lru": "everything here may be evicted",
        "volatile-lru": "what must stay has no TTL, and what may go has one",
        "noeviction": "nothing here may be evicted",
    }
    return f"use {policy}: {reasons[policy]}", [f"CONFIG SET maxmemory-policy {policy}", *before]


def _eviction(server: ServerInfo, uses: Sequence[KeyUse]) -> Iterator[Finding]:
    volatile = server.policy.startswith("volatile")
    caches = [use for use in uses if use.role == "cache"]
    evictable = [use for use in uses if use.role == "queue" and not (volatile and use.permanent)]
    if server.evicts and evictable:
        evicted = f"{format_count(server.evicted, 'key')} evicted so far"
        message = f"maxmemory-policy {server.policy} may evict {_patterns(evictable)}; {evicted}"
        yield make_finding("evictable-queue", message, *_advice(uses), server=server.name)
    if not server.max_memory and caches:
        used = format_size(server.used_memory)
        message = (
            f"{used} used and no maxmemory: {_patterns(caches)} may grow until the machine runs out of memory"
        )
        limit = f"CONFIG SET maxmemory {_room(2 * server.used_memory)}"
        yield make_finding("no-memory-limit", message, *_advice(uses, limit), server=server.name)
    kept = [use for use in caches if volatile and use.permanent]
    if server.max_memory and (kept or (caches and not server.evicts)):
        message = (
            f"maxmemory-policy {server.policy} never evicts {_patterns(kept or caches)}: "
            f"when {format_size(server.max_memory)} are full, writes fail"
        )
        yield make_finding("unevictable-cache", message, *_advice(uses), server=server.name)


def _persistence(server: ServerInfo, uses: Sequence[KeyUse]) -> Iterator[Finding]:
    queues = [use for use in uses if use.role == "queue"]
    if queues and not server.append_only:
        yield make_finding(
            "unpersisted-queue",
            f"{format_count(server.keys, 'key')}, no append-only file: a restart loses {_patterns(queues)}",
            "keep an append-only file",
            ["CONFIG SET appendonly yes", "CONFIG SET appendfsync everysec"],
            server=server.name,
        )
    if uses and all(use.role == "cache" for use in uses) and server.append_only:
        yield make_finding(
            "persisted-cache",
            f"{format_size(server.used_memory)} in an append-only file, but the server holds only caches",
            "write none",
            ["CONFIG SET appendonly no"],
            server=server.name,
        )
    failing = {"snapshots": server.snapshots_fail, "the append-only file": server.append_fails}
    if any(failing.values()):
        yield make_finding(
            "persistence-failing",
            f"the last write of {' and '.join(name for name, fails in failing.items() if fails)} failed; "
            f"{format_count(server.unsaved_changes, 'change')} since the last snapshot",
            "see the server's log: is its disk full, or its directory not writable?",
            ["INFO persistence", "CONFIG GET dir"],
            server=server.name,
        )


def _memory(server: ServerInfo) -> Iterator[Finding]:
    if server.max_memory and not server.evicts and server.used_memory > _NEARLY_FULL * server.max_memory:
        yield make_finding(
            "memory-full",
            f"{format_size(server.used_memory)} of {format_size(server.max_memory)} are used, "
            "and nothing is evicted: writes are about to fail",
            "raise maxmemory, or find out what grows: see the sizes above",
            [f"CONFIG SET maxmemory {_room(2 * server.max_memory)}"],
            server=server.name,
        )
    wasted = server.resident_memory - server.used_memory
    if server.fragmentation > _FRAGMENTED and wasted > _FRAGMENTATION_COST:
        yield make_finding(
            "fragmented",
            f"{format_size(wasted)} of memory is lost to fragmentation (ratio {server.fragmentation:.2f})",
            "defragment, or restart the server at a quiet time",
            ["CONFIG SET activedefrag yes"],
            server=server.name,
        )


def _room(size: int) -> str:
    """At least this many bytes, in the server's notation."""
    return f"{(size // _MEMORY_STEP + 1) * 64}mb"


def _patterns(uses: Sequence[KeyUse]) -> str:
    named = ", ".join(use.pattern for use in uses[:_NAMED])
    more = len(uses) - _NAMED
    return named if more <= 0 else f"{named} and {format_count(more, 'other keyspace')}"
