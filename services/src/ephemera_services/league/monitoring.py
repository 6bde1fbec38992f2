"""How the service fares, and whether it needs more: figures of this process and of Redis, and advice.

The hit ratio is that of this process's pages: a request that is answered from a copy or from Redis is a hit,
one that waits for a load is a miss. The server's own ratio is shown, too, but judges nothing: copies take the
hits away from it, and what is left are reads of what has just expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ephemera import Store
from ephemera.errors import EphemeraError, ServerError
from ephemera.operations.survey import read_info
from ephemera_services.league.figures import (
    Figures,
    Meter,
)
from ephemera_services.league.keys import RESOURCES

LOWEST_HIT_RATIO = 0.85
LONGEST_P95 = 1000.0
"""Milliseconds."""
_ENOUGH = 100
"""Requests from which on a ratio says something."""


class Pages(msgspec.Struct, frozen=True):
    """How often pages were there."""

    hits: int
    misses: int
    hit_ratio: float


class RedisFigures(msgspec.Struct, frozen=True):
    """What the servers say, summed up; bytes."""

    hit_ratio: float
    evicted_keys: int
    used_memory: int
    max_memory: int
    connected_clients: int


class Report(msgspec.Struct, frozen=True):
    """A look at the service."""

    pages: Pages
    http: Figures
    error_rate: float
    redis: RedisFigures | None
    """None when it does not answer, or not that."""
    votes_waiting: int | None
    advice: list[str]


class Monitoring:
    """Looks at a running service."""

    def __init__(self, store: Store, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    async def report(self, votes_waiting: int | None) -> Report:
        """The figures of now."""
        pages, http, refused = self.pages(), self._meter.read(), False
        try:
            redis = await self.redis()
        except ServerError:
            redis, refused = None, True
        advice = list(advise(pages, http.requests, http.p95, redis, refused=refused))
        return Report(pages, http, http.error_rate, redis, votes_waiting, advice)

    def pages(self) -> Pages:
        """How often this process had the pages that it was asked for."""
        stats = [self._store[resource].stats for resource in RESOURCES]
        hits, misses = sum(each.hits for each in stats), sum(each.misses for each in stats)
        return Pages(hits, misses, _ratio(hits, misses))

    async def redis(self) -> RedisFigures | None:
        """What the servers of both roles say of themselves; `ServerError` when the user may not ask."""
        nodes: set[Any] = {*self._store.client("cache").nodes(), *self._store.client("queue").nodes()}
        try:
            said = [await read_info(node) for node in nodes]
        except ServerError:
            raise
        except EphemeraError:
            return None

        def total(name: str) -> int:
            return sum(int(each.get(name, 0)) for each in said)

        return RedisFigures(
            hit_ratio=_ratio(total("keyspace_hits"), total("keyspace_misses")),
            evicted_keys=total("evicted_keys"),
            used_memory=total("used_memory"),
            max_memory=total("maxmemory"),
            connected_clients=total("connected_clients"),
        )


def advise(
    pages: Pages, requests: int, p95: float, redis: RedisFigures | None, *, refused: bool = False
) -> Iterator[str]:
    """What to do, if anything."""
    if pages.hits + pages.misses >= _ENOUGH and pages.hit_ratio < LOWEST_HIT_RATIO:
        yield (
            f"upgrade Redis: {pages.hit_ratio:.0%} of page requests are hits, and {LOWEST_HIT_RATIO:.0%} "
            "should be; it may be too small, or prewarming is off"
        )
    if refused:
        yield "let Redis tell its figures: ephemera acl league --for service --for metrics"
    elif redis is None:
        yield "Redis does not answer: pages come from copies and from SQL, and nobody can sign in"
    elif redis.evicted_keys:
        yield f"upgrade Redis: it has evicted {redis.evicted_keys:,} keys for want of memory"
    if requests >= _ENOUGH and p95 > LONGEST_P95:
        yield f"upgrade the machine or add a process: p95 is {p95:,.0f} ms, and 1,000 is the limit"


def _ratio(hits: int, misses: int) -> float:
    return round(hits / (hits + misses), 4) if hits + misses else 1.0
