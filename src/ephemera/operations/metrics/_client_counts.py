"""What a process has counted by itself: read from plain attributes at each scrape, without a trip.

Nothing here waits, and nothing grows with the number of keys: it is a walk over what is bound to the store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ephemera.keyspace import Role, Store
from ephemera.operations.metrics import _families as f
from ephemera.operations.metrics._families import Buckets, Sample
from ephemera.patterns.cache._runtime import BoundCache
from ephemera.patterns.events._runtime import BoundEvents
from ephemera.patterns.locks import BoundLocks
from ephemera.patterns.planner import BoundPlanner
from ephemera.patterns.rate_limits._limiter import Limiter
from ephemera.wire import LATENCY_BOUNDS, Client, NodeClient

ROLES: tuple[Role, ...] = ("cache", "queue")
_DECISIONS = ("allowed", "denied", "remembered", "degraded")
_MODES = ("redis", "sql")


def counted(store: Store) -> Iterator[Sample]:
    """All that is counted in this process."""
    yield from _spaces(store)
    for node in links(store):
        yield from _connection(node)
    for live in store.runtimes:
        if isinstance(live, BoundCache):
            yield from _copies(live)
        elif isinstance(live, Limiter):
            yield from _limits(live)
        elif isinstance(live, BoundLocks):
            yield from _locks(live)
        elif isinstance(live, BoundEvents):
            yield from _events(live)
        elif is_planner(live):
            yield from _planner(live)


def clients(store: Store) -> list[Client]:
    """The store's clients, each once."""
    return list(dict.fromkeys(store.client(role) for role in ROLES))


def links(store: Store) -> list[NodeClient]:
    """Every server that the store's commands go to, each once."""
    found: dict[Any, None] = {}
    for client in clients(store):
        found.update(dict.fromkeys([*client.nodes(), *client.readers()]))
    return list(found)


def is_planner(live: object) -> bool:
    """Whether this is a planner at work."""
    return is_of(live, "ephemera.patterns.planner._runtime", "BoundPlanner")


def is_jobs(live: object) -> bool:
    """Whether these are jobs at work."""
    return is_of(live, "ephemera.patterns.jobs", "BoundJobs")


def is_of(live: object, module: str, name: str) -> bool:
    """Whether this is of a class whose module needs an extra: who has one has imported it."""
    known = sys.modules.get(module)
    return known is not None and isinstance(live, getattr(known, name))


def _spaces(store: Store) -> Iterator[Sample]:
    for space, stats in store.stats.items():
        labels = (space.pattern,)
        yield Sample(f.SPACE_HITS, labels, stats.hits)
        yield Sample(f.SPACE_MISSES, labels, stats.misses)
        yield Sample(f.SPACE_UNDECODABLE, labels, stats.undecodable)
        yield Sample(f.SPACE_WRITES, labels, stats.writes)
        yield Sample(f.SPACE_ERRORS, labels, stats.errors)
        yield Sample(f.SPACE_READ_BYTES, labels, stats.bytes_read)
        yield Sample(f.SPACE_WRITTEN_BYTES, labels, stats.bytes_written)


def _connection(node: NodeClient) -> Iterator[Sample]:
    labels, link = (str(node.endpoint),), node.link
    yield Sample(f.CONNECTION_UP, labels, link.up)
    yield Sample(f.RECONNECTIONS, labels, max(0, link.connects - 1))
    yield Sample(f.IN_FLIGHT, labels, link.in_flight)
    took = link.latencies
    yield Sample(f.CALL_DURATION, labels, Buckets(LATENCY_BOUNDS, tuple(took.counts), took.seconds))


def _copies(cache: BoundCache[Any]) -> Iterator[Sample]:
    labels, copies = (cache.declared.space.pattern,), cache.copies
    if copies is not None:
        yield Sample(f.COPIES, labels, len(copies))
        yield Sample(f.COPIES_BYTES, labels, copies.bytes)
        yield Sample(f.COPIES_EVICTED, labels, copies.evictions)


def _limits(limiter: Limiter) -> Iterator[Sample]:
    for rule, counts in limiter.by_rule.items():
        for decision in _DECISIONS:
            yield Sample(f.LIMIT_DECISIONS, (rule.name, decision), getattr(counts, decision))


def _locks(locks: BoundLocks) -> Iterator[Sample]:
    labels = (locks.declaration.keyspace.pattern,)
    yield Sample(f.LOCKS_HELD, labels, locks.held)
    yield Sample(f.LOCKS_TAKEN, labels, locks.acquired)
    yield Sample(f.LOCKS_LOST, labels, locks.lost)


def _events(events: BoundEvents[Any]) -> Iterator[Sample]:
    for group, counts in events.tallies.by_group().items():
        labels = (events.declared.space.pattern, group)
        yield Sample(f.EVENTS_HANDLED, labels, counts.handled)
        yield Sample(f.EVENTS_FAILED, labels, counts.failed)
        yield Sample(f.EVENTS_DEAD, labels, counts.dead)


def planner_name(planner: BoundPlanner) -> str:
    """What tells a planner from others: its catalogue, which has one."""
    return planner.declared.dirty.catalogue


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
