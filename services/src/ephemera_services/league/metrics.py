"""The league's own Prometheus metrics, at the service's `/metrics`: its database."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)


class Metrics:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.query_seconds = Histogram(
            "league_sql_query_seconds",
            "Duration of SQL statements; its count is that of the queries",
            buckets=_SECONDS,
            registry=registry,
        )
        self.errors = Counter("league_sql_errors", "SQL statements that failed", registry=registry)
        self.slow_queries = Counter(
            "league_sql_slow_queries",
            "SQL statements that took longer than EPHEMERA_LEAGUE_SLOW_QUERY_MILLISECONDS",
            registry=registry,
        )
        self.connections = Gauge("league_sql_connections", "SQL connections in use", registry=registry)
        self.connection_wait_seconds = Histogram(
            "league_sql_connection_wait_seconds",
            "Waits for an SQL connection while all were in use",
            buckets=_SECONDS,
            registry=registry,
        )
