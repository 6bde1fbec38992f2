"""SQL statistics of this process: queries per second, waits for a connection, and slow queries.

The engine's events measure every statement until its rows are there; the pool (`DatabaseMeter.pool_class`)
measures who finds all connections in use. Memory is bounded: a count per second of the last minute, and the
text of at most 20 slow statements, always without the values of their parameters.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from time import monotonic, perf_counter
from typing import Any

import msgspec
from sqlalchemy import PoolProxiedConnection, event
from sqlalchemy.engine import Connection, ExceptionContext
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.sql import ShrinkingPool
from ephemera_services.league.metrics import Metrics

NOTICEABLE_WAIT = 0.05  # seconds for a connection; shorter ones, as after a result, cost no one anything
_WINDOW = 60  # seconds
_MAX_STATEMENTS = 20
_MAX_TEXT = 300  # characters of a statement
_STARTED = "league.started"
_LIST = re.compile(r"%\(\w+\)s(?:::\w+)?(?:, %\(\w+\)s(?:::\w+)?)+")
"""A list of parameters, whose length differs from call to call."""


class SlowStatement(msgspec.Struct, kw_only=True):
    """A statement that has been slow; times in milliseconds."""

    statement: str
    """Its text, shortened, with the names of its parameters."""
    count: int = 0
    """How often it was slow."""
    slowest: float = 0.0
    last: float = 0.0


class DatabaseFigures(msgspec.Struct, kw_only=True, frozen=True):
    """The statistics of the database as this process sees it; times in milliseconds."""

    queries: int
    queries_per_second: float
    """In the last minute."""
    errors: int
    """Statements that failed."""
    connections: int
    """In use now."""
    max_connections: int
    connection_waits: int
    """How often all connections were in use."""
    connection_timeouts: int
    """How often none became free in time."""
    longest_wait: float
    slow_queries: int
    slow_statements: list[SlowStatement]
    """The last distinct ones, the slowest first."""
    recent_slow: float
    """The share of slow ones among the queries of the last minute."""
    recent_waits: float
    """The share of noticeable waits among the connections that were requested in the last minute."""
    recent_queries: int


class RecentCount:
    """Counts what happened in the last minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._seconds: deque[list[int]] = deque(maxlen=_WINDOW + 1)  # pairs of a second and its count

    def add(self) -> None:
        """Count one."""
        second = int(self._clock())
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0])
        self._seconds[-1][1] += 1

    def total(self) -> int:
        """The count of the last minute."""
        oldest = int(self._clock()) - _WINDOW
        return sum(count for second, count in self._seconds if second > oldest)

    def per_second(self) -> float:
        """The rate of the last minute, or since the start if that is later."""
        return self.total() / min(_WINDOW, max(1.0, self._clock() - self._since))


class DatabaseMeter:
    """Measures one engine from `attach` on.

    Args:
        slow: How long a query takes that is slow.

    """

    def __init__(self, slow: timedelta) -> None:
        self._slow = slow.total_seconds()
        self._metrics: Metrics | None = None
        self._pool: Callable[[], ShrinkingPool] | None = None
        self._queries = self._errors = self._slow_queries = self._waits = self._timeouts = 0
        self._longest_wait = 0.0
        self._recent, self._recent_slow = RecentCount(), RecentCount()
        self._recent_requests, self._recent_waits = RecentCount(), RecentCount()
        self._statements: dict[str, SlowStatement] = {}  # the least recent first

    def pool_class(self) -> type[ShrinkingPool]:
        """Return a pool, for the engine, that reports waits to this meter."""
        meter = self

        class MeasuredPool(ShrinkingPool):
            """A pool that notices who finds all connections in use."""

            def connect(self) -> PoolProxiedConnection:
                """Return a connection, after a wait if all are in use."""
                meter._recent_requests.add()
                if self.checkedout() < self.size():
                    return super().connect()
                started = perf_counter()
                try:
                    return super().connect()
                except PoolTimeout:
                    meter._timeouts += 1
                    raise
                finally:
                    meter._count_wait(perf_counter() - started)

        return MeasuredPool

    def attach(self, engine: AsyncEngine, metrics: Metrics) -> None:
        """Measure the queries of an engine whose pool is of `pool_class`."""

        def pool() -> ShrinkingPool:
            found = engine.sync_engine.pool
            if not isinstance(found, ShrinkingPool):
                raise TypeError(f"the pool of the engine is {found!r}: give it `pool_class()`")
            return found

        self._metrics, self._pool = metrics, pool
        metrics.connections.set_function(lambda: pool().checkedout())
        event.listen(engine.sync_engine, "before_cursor_execute", self._begin)
        event.listen(engine.sync_engine, "after_cursor_execute", self._end)
        event.listen(engine.sync_engine, "handle_error", self._fail)

    def read(self) -> DatabaseFigures:
        """The statistics so far."""
        recent = self._recent.total()
        pool = None if self._pool is None else self._pool()
        return DatabaseFigures(
            queries=self._queries,
            queries_per_second=round(self._recent.per_second(), 2),
            errors=self._errors,
            connections=0 if pool is None else pool.checkedout(),
            max_connections=0 if pool is None else pool.size(),
            connection_waits=self._waits,
            connection_timeouts=self._timeouts,
            longest_wait=_milliseconds(self._longest_wait),
            slow_queries=self._slow_queries,
            slow_statements=sorted(self._statements.values(), key=lambda each: -each.slowest),
            recent_slow=_share(self._recent_slow.total(), recent),
            recent_waits=_share(self._recent_waits.total(), self._recent_requests.total()),
            recent_queries=recent,
        )

    def _begin(self, connection: Connection, *_: Any) -> None:
        connection.info[_STARTED] = perf_counter()

    def _end(self, connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        self._count(connection, statement)

    def _fail(self, context: ExceptionContext) -> None:
        self._errors += 1
        if self._metrics is not None:
            self._metrics.errors.inc()
        if context.connection is not None and not context.connection.invalidated and context.statement:
            self._count(context.connection, context.statement)

    def _count(self, connection: Connection, statement: str) -> None:
        started = connection.info.pop(_STARTED, None)
        if started is None:  # it failed before it was sent
            return
        seconds = perf_counter() - started
        self._queries += 1
        self._recent.add()
        if self._metrics is not None:
            self._metrics.query_seconds.observe(seconds)
        if seconds >= self._slow:
            self._count_slow(statement, seconds)

    def _count_slow(self, statement: str, seconds: float) -> None:
        self._slow_queries += 1
        self._recent_slow.add()
        if self._metrics is not None:
            self._metrics.slow_queries.inc()
        text = _LIST.sub("...", " ".join(statement.split()))[:_MAX_TEXT]
        found = self._statements.pop(text, None) or SlowStatement(statement=text)
        found.count += 1
        found.last = _milliseconds(seconds)
        found.slowest = max(found.slowest, found.last)
        self._statements[text] = found
        if len(self._statements) > _MAX_STATEMENTS:
            del self._statements[next(iter(self._statements))]

    def _count_wait(self, seconds: float) -> None:
        self._waits += 1
        if seconds >= NOTICEABLE_WAIT:
            self._recent_waits.add()
        self._longest_wait = max(self._longest_wait, seconds)
        if self._metrics is not None:
            self._metrics.connection_wait_seconds.observe(seconds)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
