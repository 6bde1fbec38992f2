"""A server compared with the roles of the keyspaces make_finding on it.

Role `cache` needs a memory limit, eviction and no persistence; role `queue` needs the opposite. `ephemera
server-config` writes a configuration for either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ephemera.keyspace import Keyspace, Permanent
from ephemera.operations.audit._report import Finding, make_finding
from ephemera.operations.formatting import format_count, format_size
from ephemera.operations.survey import ServerInfo

_NAMED = 3  # keyspaces that a message names
_NEARLY_FULL = 0.9
_FRAGMENTED = 1.5  # resident memory by used memory
_FRAGMENTATION_COST = 64 * 1024 * 1024  # bytes that fragmentation must cost to be reported


def server_findings(server: ServerInfo, keyspaces: Sequence[Keyspace[Any]]) -> Iterator[Finding]:
    """The deviations of a server that holds keys of these keyspaces."""
    queues = [keyspace for keyspace in keyspaces if keyspace.role == "queue"]
    caches = [keyspace for keyspace in keyspaces if keyspace.role == "cache"]
    yield from _eviction(server, queues, caches)
    yield from _persistence(server, queues, caches)
    yield from _memory(server)


def _eviction(
    server: ServerInfo, queues: Sequence[Keyspace[Any]], caches: Sequence[Keyspace[Any]]
) -> Iterator[Finding]:
    volatile = server.policy.startswith("volatile")
    evictable = [s for s in queues if not (volatile and isinstance(s.lifetime, Permanent))]
    if server.evicts and evictable:
        yield make_finding(
            "evictable-queue",
            f"maxmemory-policy {server.policy} may evict {_patterns(evictable)}"
            + (f"; {server.evicted:,} keys were already evicted from this server" if server.evicted else ""),
            "keep role queue on a server with noeviction: connect(..., queue_url=...)",
            server=server.name,
        )
    if not server.max_memory and caches:
        yield make_finding(
            "no-memory-limit",
            f"no maxmemory: {_patterns(caches)} may grow until the machine runs out of memory",
            "set maxmemory, and maxmemory-policy allkeys-lru",
            server=server.name,
        )
    kept = [s for s in caches if volatile and isinstance(s.lifetime, Permanent)]
    if server.max_memory and (kept or (caches and not server.evicts)):
        yield make_finding(
            "unevictable-cache",
            f"maxmemory-policy {server.policy} never evicts {_patterns(kept or caches)}: "
            "when memory is full, writes fail",
            "use maxmemory-policy allkeys-lru for role cache",
            server=server.name,
        )


def _persistence(
    server: ServerInfo, queues: Sequence[Keyspace[Any]], caches: Sequence[Keyspace[Any]]
) -> Iterator[Finding]:
    if queues and not server.append_only:
        yield make_finding(
            "unpersisted-queue",
            f"no append-only file: a restart loses {_patterns(queues)}",
            "set appendonly yes, appendfsync everysec",
            server=server.name,
        )
    if caches and not queues and server.append_only:
        yield make_finding(
            "persisted-cache",
            "every write goes to an append-only file, although the server holds only caches",
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
        yield make_finding(
            "persistence-failing",
            f"the last write of {' and '.join(failing)} failed",
            "see the server's log: is its disk full, or its directory not writable?",
            server=server.name,
        )


def _memory(server: ServerInfo) -> Iterator[Finding]:
    if server.max_memory and not server.evicts and server.used_memory > _NEARLY_FULL * server.max_memory:
        yield make_finding(
            "memory-full",
            f"{format_size(server.used_memory)} of {format_size(server.max_memory)} are used, "
            "and nothing is evicted: writes are about to fail",
            "raise maxmemory, or find out what grows: see the sizes above",
            server=server.name,
        )
    wasted = server.resident_memory - server.used_memory
    if server.fragmentation > _FRAGMENTED and wasted > _FRAGMENTATION_COST:
        yield make_finding(
            "fragmented",
            f"{format_size(wasted)} of memory is lost to fragmentation (ratio {server.fragmentation:.2f})",
            "set activedefrag yes, or restart the server at a quiet time",
            server=server.name,
        )


def _patterns(keyspaces: Sequence[Keyspace[Any]]) -> str:
    named = ", ".join(keyspace.pattern for keyspace in keyspaces[:_NAMED])
    more = len(keyspaces) - _NAMED
    return named if more <= 0 else f"{named} and {format_count(more, 'other keyspace')}"
