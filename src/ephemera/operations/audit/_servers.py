"""A server against the roles of the spaces that were found on it.

Role `cache` wants a memory limit and eviction, and no disk; role `queue` wants the opposite. `ephemera
server-config` writes a configuration for either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ephemera.keyspace import Keyspace, Permanent
from ephemera.operations.audit._findings import Finding, found
from ephemera.operations.inspect._formatting import counted, shown_size
from ephemera.operations.inspect._server_facts import ServerFacts

_NAMED = 3  # spaces that a message names
_NEARLY_FULL = 0.9
_FRAGMENTED = 1.5  # resident memory by used memory
_WORTH_A_WORD = 64 * 1024 * 1024  # bytes that fragmentation must cost to be mentioned


def findings_of(server: ServerFacts, spaces: Sequence[Keyspace[Any]]) -> Iterator[Finding]:
    """What is wrong with a server that carries keys of these spaces."""
    queues = [space for space in spaces if space.role == "queue"]
    caches = [space for space in spaces if space.role == "cache"]
    yield from _eviction(server, queues, caches)
    yield from _persistence(server, queues, caches)
    yield from _memory(server)


def _eviction(
    server: ServerFacts, queues: Sequence[Keyspace[Any]], caches: Sequence[Keyspace[Any]]
) -> Iterator[Finding]:
    volatile = server.policy.startswith("volatile")
    evictable = [s for s in queues if not (volatile and isinstance(s.lifetime, Permanent))]
    if server.evicts and evictable:
        yield found(
            "evictable-queue",
            f"maxmemory-policy {server.policy} may evict {_patterns(evictable)}"
            + (f"; {server.evicted:,} keys of this server were evicted already" if server.evicted else ""),
            "keep role queue on a server with noeviction: connect(..., queue_url=...)",
            server=server.name,
        )
    if not server.max_memory and caches:
        yield found(
            "no-memory-limit",
            f"no maxmemory: {_patterns(caches)} may grow until the machine has no memory left",
            "set maxmemory, and maxmemory-policy allkeys-lru",
            server=server.name,
        )
    kept = [s for s in caches if volatile and isinstance(s.lifetime, Permanent)]
    if server.max_memory and (kept or (caches and not server.evicts)):
        yield found(
            "unevictable-cache",
            f"maxmemory-policy {server.policy} never evicts {_patterns(kept or caches)}: "
            "when memory is full, writes fail",
            "use maxmemory-policy allkeys-lru for role cache",
            server=server.name,
        )


def _persistence(
    server: ServerFacts, queues: Sequence[Keyspace[Any]], caches: Sequence[Keyspace[Any]]
) -> Iterator[Finding]:
    if queues and not server.append_only:
        yield found(
            "unpersisted-queue",
            f"no append-only file: a restart loses {_patterns(queues)}",
            "set appendonly yes, appendfsync everysec",
            server=server.name,
        )
    if caches and not queues and server.append_only:
        yield found(
            "persisted-cache",
            "every write goes to an append-only file, though only caches are here",
            "set appendonly no",
            server=server.name,
        )
    failing = [
        name
        for name, fails in (
            ("snapshots", server.snapshots_fail),
            ("the append-only file", server.append_fails),
        )
        if fails
    ]
    if failing:
        yield found(
            "persistence-failing",
            f"the last write of {' and '.join(failing)} failed",
            "see the server's log: is its disk full, or its folder not writable?",
            server=server.name,
        )


def _memory(server: ServerFacts) -> Iterator[Finding]:
    if server.max_memory and not server.evicts and server.used_memory > _NEARLY_FULL * server.max_memory:
        yield found(
            "memory-full",
            f"{shown_size(server.used_memory)} of {shown_size(server.max_memory)} are used, "
            "and nothing is evicted: writes are about to fail",
            "raise maxmemory, or find out what grows: see the sizes above",
            server=server.name,
        )
    wasted = server.resident_memory - server.used_memory
    if server.fragmentation > _FRAGMENTED and wasted > _WORTH_A_WORD:
        yield found(
            "fragmented",
            f"{shown_size(wasted)} of memory are lost to fragmentation (ratio {server.fragmentation:.2f})",
            "set activedefrag yes, or restart it at a quiet time",
            server=server.name,
        )


def _patterns(spaces: Sequence[Keyspace[Any]]) -> str:
    named = ", ".join(space.pattern for space in spaces[:_NAMED])
    more = len(spaces) - _NAMED
    return named if more <= 0 else f"{named} and {counted(more, 'other space')}"
