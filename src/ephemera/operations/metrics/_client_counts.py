"""What this process has counted: read from plain attributes at each scrape, without a round trip.

The cost depends on the number of declarations bound to the store, not on the number of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ephemera.keyspace import Role, Store
from ephemera.operations._optional_types import is_instance
from ephemera.operations.metrics import _families as f
from ephemera.operations.metrics._families import Buckets, Sample
from ephemera.patterns.cache import BoundCache, cache_engine
from ephemera.patterns.events import BoundEvents
from ephemera.patterns.locks import LockRuntime
from ephemera.patterns.rate_limits import BoundRateLimits
from ephemera.wire import LATENCY_BOUNDS, Client, NodeClient

if TYPE_CHECKING:  # it needs the extra `sql`
    from ephemera.patterns.planner import BoundPlanner

ROLES: tuple[Role, ...] = ("cache", "queue")
_DECISIONS = ("allowed", "denied", "remembered", "degraded")
_MODES = ("redis", "sql")


def client_samples(store: Store) -> Iterator[Sample]:
    """Every figure that is counted in this process."""
    yield from _keyspaces(store)
    for node in nodes(store):
        yield from _connection(node)
    for bound in store.runtimes:
        if isinstance(bound, BoundCache):
            yield from _local_cache(bound)
        elif isinstance(bound, BoundRateLimits):
            yield from _limits(bound)
        elif isinstance(bound, LockRuntime):
            yield from _locks(bound)
        elif isinstance(bound, BoundEvents):
            yield from _events(bound)
        elif is_planner(bound):
            yield from _planner(bound)


def clients(store: Store) -> list[Client]:
    """The store's clients, each once."""
    return list(dict.fromkeys(store.client(role) for role in ROLES))


def nodes(store: Store) -> list[NodeClient]:
    """Every server that the store sends commands to, each once."""
    found: dict[Any, None] = {}
    for client in clients(store):
        found.update(dict.fromkeys([*client.nodes(), *client.read_nodes()]))
    return list(found)


def is_planner(bound: object) -> bool:
    """Whether this is a planner."""
    return is_instance(bound, "ephemera.patterns.planner", "BoundPlanner")


def is_jobs(bound: object) -> bool:
    """Whether this is a job queue."""
    return is_instance(bound, "ephemera.patterns.jobs", "BoundJobs")


def _keyspaces(store: Store) -> Iterator[Sample]:
    for keyspace, stats in store.stats.items():
        labels = (keyspace.pattern,)
        yield Sample(f.KEYSPACE_HITS, labels, stats.hits)
        yield Sample(f.KEYSPACE_MISSES, labels, stats.misses)
        yield Sample(f.KEYSPACE_UNDECODABLE, labels, stats.undecodable)
        yield Sample(f.KEYSPACE_WRITES, labels, stats.writes)
        yield Sample(f.KEYSPACE_ERRORS, labels, stats.errors)
        yield Sample(f.KEYSPACE_READ_BYTES, labels, stats.bytes_read)
        yield Sample(f.KEYSPACE_WRITTEN_BYTES, labels, stats.bytes_written)


def _connection(node: NodeClient) -> Iterator[Sample]:
    labels, link = (str(node.endpoint),), node.link
    yield Sample(f.CONNECTION_UP, labels, link.up)
    first = 0 if link.replaces else 1
    yield Sample(f.RECONNECTIONS, labels, max(0, link.connection_count - first))
    yield Sample(f.IN_FLIGHT, labels, link.in_flight)
    took = link.latencies
    yield Sample(f.CALL_DURATION, labels, Buckets(LATENCY_BOUNDS, tuple(took.counts), took.seconds))


def _local_cache(cache: BoundCache[Any]) -> Iterator[Sample]:
    labels, local = (cache.declared.keyspace.pattern,), cache_engine(cache).entries.local
    if local is not None:
        yield Sample(f.LOCAL_ENTRIES, labels, len(local))
        yield Sample(f.LOCAL_BYTES, labels, local.bytes)
        yield Sample(f.LOCAL_EVICTIONS, labels, local.evictions)


def _limits(limiter: BoundRateLimits) -> Iterator[Sample]:
    for rule, counts in limiter.by_rule.items():
        for decision in _DECISIONS:
            yield Sample(f.LIMIT_DECISIONS, (rule.name, decision), getattr(counts, decision))


def _locks(locks: LockRuntime) -> Iterator[Sample]:
    labels = (locks.declaration.keyspace.pattern,)
    yield Sample(f.LOCKS_HELD, labels, locks.held)
    yield Sample(f.LOCKS_ACQUIRED, labels, locks.acquired)
    yield Sample(f.LOCKS_LOST, labels, locks.lost)


def _events(events: BoundEvents[Any]) -> Iterator[Sample]:
    for group, counts in events.consumer_counts().items():
        labels = (events.declaration.keyspace.pattern, group)
        yield Sample(f.EVENTS_HANDLED, labels, counts.handled)
        yield Sample(f.EVENTS_FAILED, labels, counts.failed)
        yield Sample(f.EVENTS_DEAD, labels, counts.dead)
        yield Sample(f.EVENTS_DROPPED, labels, counts.dropped)


def planner_name(planner: BoundPlanner) -> str:
    """The label of a planner: its catalogue, which has only one."""
    return planner.declared.keys.dirty.catalogue


def _planner(planner: BoundPlanner) -> Iterator[Sample]:
    name, status = planner_name(planner), planner.status
    for mode in _MODES:
        yield Sample(f.PLANNER_MODE, (name, mode), mode == status.mode)
    yield Sample(f.PLANNER_TICKS, (name,), status.ticks)
    yield Sample(f.PLANNER_FAILED, (name,), status.failed_ticks)
    yield Sample(f.PLANNER_SWITCHES, (name,), status.switches)
    yield Sample(f.PLANNER_MISSED, (name,), status.missed_by_redis)
    if status.last_tick is not None:
        yield Sample(f.PLANNER_CANDIDATES, (name,), status.last_tick.candidates)
        yield Sample(f.PLANNER_DURATION, (name,), status.last_tick.seconds)
        yield Sample(f.PLANNER_LAST, (name,), status.last_tick.at / 1000)
