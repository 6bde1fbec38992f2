"""Figures of this process, of Redis and of the database, and advice whether the service needs more resources.

The hit ratio is that of this process's pages: a request served from the local cache or from Redis is a hit,
one that waits for a load is a miss. The server's own ratio is also shown but not judged: the local cache
absorbs most hits, so the server mostly sees reads of expired pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ephemera import Store
from ephemera.errors import EphemeraError, ServerError
from ephemera.operations.survey import read_info
from ephemera_services.league.database_figures import DatabaseFigures, DatabaseMeter
from ephemera_services.league.figures import RequestFigures, RequestMeter
from ephemera_services.league.keys import RESOURCES, LegacyProgress
from ephemera_services.league.peak import PeakAdaptation, PeakFigures

MIN_HIT_RATIO = 0.85
MAX_P95 = 1000.0
"""Milliseconds."""
MAX_WAITS, MAX_SLOW = 0.05, 0.01
"""Of the connections and queries of a minute."""
_MIN_REQUESTS = 100
"""Below this number of requests a ratio means nothing."""


class Pages(msgspec.Struct, frozen=True):
    """Hits and misses of pages."""

    hits: int
    misses: int
    hit_ratio: float


class RedisFigures(msgspec.Struct, frozen=True):
    """The servers' statistics, summed; sizes in bytes."""

    hit_ratio: float
    evicted_keys: int
    used_memory: int
    max_memory: int
    connected_clients: int


class Report(msgspec.Struct, frozen=True):
    """The monitoring report."""

    pages: Pages
    http: RequestFigures
    error_rate: float
    redis: RedisFigures | None
    """None if it is down, or its user lacks the permission."""
    database: DatabaseFigures
    peak: PeakFigures
    votes_waiting: int | None
    legacy_predictions: LegacyProgress | None
    """How far their migration is; None some minutes after it."""
    advice: list[str]


class Monitor:
    """Monitors a running service."""

    def __init__(
        self, store: Store, meter: RequestMeter, database: DatabaseMeter, peak: PeakAdaptation
    ) -> None:
        self._store, self._peak = store, peak
        self._meter = meter
        self._database = database

    async def report(self, votes_waiting: int | None, legacy: LegacyProgress | None) -> Report:
        """The current figures."""
        pages, http, refused = self.pages(), self._meter.read(), False
        try:
            redis = await self.redis()
        except ServerError:
            redis, refused = None, True
        database = self._database.read()
        advice = list(advise(pages, http.requests, http.p95, redis, refused=refused))
        advice += advise_database(database)
        return Report(
            pages, http, http.error_rate, redis, database, self._peak.figures, votes_waiting, legacy, advice
        )

    def pages(self) -> Pages:
        """The hit ratio of this process's pages."""
        stats = [self._store[resource].stats for resource in RESOURCES]
        hits, misses = sum(each.hits for each in stats), sum(each.misses for each in stats)
        return Pages(hits, misses, _ratio(hits, misses))

    async def redis(self) -> RedisFigures | None:
        """The statistics of the servers of both roles; `ServerError` if the Redis user may not read them."""
        nodes: set[Any] = {*self._store.client("cache").nodes(), *self._store.client("queue").nodes()}
        try:
            replies = [await read_info(node) for node in nodes]
        except ServerError:
            raise
        except EphemeraError:
            return None

        def total(name: str) -> int:
            return sum(int(each.get(name, 0)) for each in replies)

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
    """Advice, if any."""
    if pages.hits + pages.misses >= _MIN_REQUESTS and pages.hit_ratio < MIN_HIT_RATIO:
        yield (
            f"upgrade Redis: {pages.hit_ratio:.0%} of page requests are hits, and {MIN_HIT_RATIO:.0%} "
            "is the target; Redis may be too small, or prewarming is off"
        )
    if refused:
        yield "allow INFO for the Redis user: ephemera acl league --for service --for metrics"
    elif redis is None:
        yield "Redis is down: pages come from local caches and SQL, and sign-ins fail"
    elif redis.evicted_keys:
        yield f"upgrade Redis: it has evicted {redis.evicted_keys:,} keys because its memory is full"
    if requests >= _MIN_REQUESTS and p95 > MAX_P95:
        yield f"upgrade the machine or add a process: p95 is {p95:,.0f} ms, the target is 1,000"


def advise_database(database: DatabaseFigures) -> Iterator[str]:
    """Advice about the last minute of the database, if any."""
    if database.recent_queries < _MIN_REQUESTS:
        return
    if database.recent_waits > MAX_WAITS:
        yield (
            f"give the service more SQL connections, or add a process: {database.recent_waits:.0%} of the "
            f"requests for one have waited because all {database.max_connections} were in use"
        )
    if database.recent_slow > MAX_SLOW:
        yield (
            f"upgrade the database: {database.recent_slow:.0%} of {database.queries_per_second:,.0f} queries "
            "per second are slow; `slow_statements` shows which"
        )


def _ratio(hits: int, misses: int) -> float:
    return round(hits / (hits + misses), 4) if hits + misses else 1.0
