"""Every metric: name, type, labels and meaning, declared once.

The scrape, the reference page and the Grafana dashboard are made from these declarations, so none of them can
name a metric that does not exist. Names contain base units; labels have few values: patterns, rules, groups,
kinds, states and servers, never ids. A `shared` metric is read from a server or a database and is the same in
every process: use the maximum, not the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Section: TypeAlias = Literal[
    "keyspaces", "connections", "local-cache", "limits", "locks", "events", "jobs", "write-behind", "planner",
    "servers", "samples", "requests",
]  # fmt: skip
"""A section of the reference page and the dashboard."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric; compared by identity, which is fast."""

    section: Section
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    shared: bool = False


class Buckets(NamedTuple):
    """The value of a histogram: the count of each bucket, the last one unbounded, and the sum."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float


class Sample(NamedTuple):
    """One value of a metric, for the values of its labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Buckets


METRICS: list[Metric] = []
"""All metrics, in the order of the reference page."""


def _metric(
    section: Section, name: str, kind: Kind, labels: tuple[str, ...], text: str, *, shared: bool = False
) -> Metric:
    metric = Metric(section, f"ephemera_{name}", kind, labels, text, shared)
    METRICS.append(metric)
    return metric


_KEYSPACE = ("keyspace",)
KEYSPACE_HITS = _metric("keyspaces", "keyspace_hits_total", "counter", _KEYSPACE, "Reads that found a value.")
"""Hits of each keyspace."""
KEYSPACE_MISSES = _metric(
    "keyspaces", "keyspace_misses_total", "counter", _KEYSPACE, "Reads that found no value."
)
"""Misses of each keyspace."""
KEYSPACE_UNDECODABLE = _metric(
    "keyspaces", "keyspace_undecodable_total", "counter", _KEYSPACE,
    "Stored values that do not decode as the declared type; they read as misses.",
)  # fmt: skip
KEYSPACE_WRITES = _metric("keyspaces", "keyspace_writes_total", "counter", _KEYSPACE, "Writes and deletions.")
KEYSPACE_ERRORS = _metric(
    "keyspaces",
    "keyspace_errors_total",
    "counter",
    _KEYSPACE,
    "Operations that failed: server unavailable, or command refused.",
)
KEYSPACE_READ_BYTES = _metric(
    "keyspaces", "keyspace_read_bytes_total", "counter", _KEYSPACE, "Bytes of stored values read."
)
KEYSPACE_WRITTEN_BYTES = _metric(
    "keyspaces",
    "keyspace_written_bytes_total",
    "counter",
    _KEYSPACE,
    "Bytes of values sent to be stored.",
)
KEYSPACE_DURATION = _metric(
    "keyspaces", "keyspace_duration_seconds", "histogram", _KEYSPACE,
    "Time from a write to the last reply to its commands, by the keyspace of the first; from a sample.",
)  # fmt: skip
"""Durations of round trips by keyspace."""

_SERVER = ("server",)
CONNECTION_UP = _metric(
    "connections",
    "connection_up",
    "gauge",
    _SERVER,
    "1 while the connection is usable, 0 while the server is unavailable.",
)
RECONNECTIONS = _metric(
    "connections",
    "reconnections_total",
    "counter",
    _SERVER,
    "Connections after the first, or to a server that took over.",
)
IN_FLIGHT = _metric("connections", "calls_in_flight", "gauge", _SERVER, "Commands sent and not answered yet.")
CALL_DURATION = _metric(
    "connections", "call_duration_seconds", "histogram", _SERVER,
    "Time from a write to the last reply to its commands.",
)  # fmt: skip
"""Durations of calls to each server."""

LOCAL_ENTRIES = _metric(
    "local-cache", "local_cache_entries", "gauge", _KEYSPACE, "Entries in the local cache of this process."
)
LOCAL_BYTES = _metric(
    "local-cache", "local_cache_bytes", "gauge", _KEYSPACE, "Approximate memory of the local cache."
)
LOCAL_EVICTIONS = _metric(
    "local-cache",
    "local_cache_evictions_total",
    "counter",
    _KEYSPACE,
    "Entries evicted from the local cache because it was full.",
)

LIMIT_DECISIONS = _metric(
    "limits", "limit_decisions_total", "counter", ("rule", "decision"),
    "Checks by decision of a rule: allowed, denied, remembered (denied without asking the server), "
    "or degraded (decided by policy while the server is unavailable).",
)  # fmt: skip

LOCKS_HELD = _metric("locks", "locks_held", "gauge", _KEYSPACE, "Locks and permits that this process holds.")
LOCKS_ACQUIRED = _metric("locks", "locks_acquired_total", "counter", _KEYSPACE, "Locks and permits acquired.")
LOCKS_LOST = _metric(
    "locks", "locks_lost_total", "counter", _KEYSPACE, "Locks and permits lost before they were released."
)

_GROUP = ("keyspace", "group")
EVENTS_HANDLED = _metric("events", "events_handled_total", "counter", _GROUP, "Events handled successfully.")
EVENTS_FAILED = _metric(
    "events", "events_failed_total", "counter", _GROUP, "Failed attempts to handle an event."
)
EVENTS_DEAD = _metric("events", "events_dead_total", "counter", _GROUP, "Events moved to the dead letters.")
STREAM_LENGTH = _metric("events", "stream_length", "gauge", _KEYSPACE, "Events in streams.", shared=True)
STREAM_DEAD = _metric("events", "stream_dead_letters", "gauge", _KEYSPACE, "Dead letters.", shared=True)
STREAM_LAG = _metric(
    "events", "stream_lag", "gauge", _GROUP, "Events not yet delivered to the group.", shared=True
)
STREAM_PENDING = _metric(
    "events", "stream_pending", "gauge", _GROUP,
    "Events delivered and not acknowledged: in progress, or waiting for a retry.", shared=True,
)  # fmt: skip
STREAM_CONSUMERS = _metric(
    "events", "stream_consumers", "gauge", _GROUP, "Consumers in the group.", shared=True
)

STREAM_PAUSED = _metric(
    "events", "stream_paused", "gauge", _GROUP,
    "Streams on which the group is paused because a dependency is down.", shared=True,
)  # fmt: skip
EVENTS_DROPPED = _metric(
    "events", "events_dropped_total", "counter", _GROUP,
    "Events that failed and were acknowledged, as the consumer's on_error says.",
)  # fmt: skip

JOBS_OPEN = _metric(
    "jobs", "jobs_open", "gauge", ("queue", "kind", "state"), "Jobs waiting or running.", shared=True
)
JOBS_AT_STEP = _metric(
    "jobs", "jobs_at_step", "gauge", ("kind", "step"),
    "Running jobs by the last recorded step; digits in its name are replaced by #.", shared=True,
)  # fmt: skip
JOBS_WAIT = _metric(
    "jobs", "jobs_oldest_wait_seconds", "gauge", ("queue",),
    "How long the longest-waiting job has been due.", shared=True,
)  # fmt: skip
JOBS_FINISHED = _metric(
    "jobs", "jobs_finished_total", "counter", ("kind", "state"),
    "Jobs that finished since this process started to observe: done, failed, cancelled or dead.", shared=True,
)  # fmt: skip
JOB_DURATION = _metric(
    "jobs", "job_duration_seconds", "histogram", ("kind",),
    "Time from the start of the first attempt to the end.", shared=True,
)  # fmt: skip

_QUEUE = ("queue",)
BACKLOG = _metric(
    "write-behind", "write_behind_backlog", "gauge", _QUEUE, "Counters or records waiting for SQL.",
    shared=True,
)  # fmt: skip
BACKLOG_LIMIT = _metric(
    "write-behind", "write_behind_backlog_limit", "gauge", _QUEUE,
    "How many may wait before more are refused.", shared=True,
)  # fmt: skip
BACKLOG_AGE = _metric(
    "write-behind", "write_behind_age_seconds", "gauge", _QUEUE,
    "Age of the oldest waiting entry; of a batch being flushed, since it was sealed.", shared=True,
)  # fmt: skip

_PLANNER = ("planner",)
PLANNER_MODE = _metric(
    "planner",
    "planner_mode",
    "gauge",
    ("planner", "mode"),
    "1 for the source that the last tick read: redis or sql.",
)
PLANNER_TICKS = _metric("planner", "planner_ticks_total", "counter", _PLANNER, "Successful ticks.")
PLANNER_FAILED = _metric(
    "planner",
    "planner_failed_ticks_total",
    "counter",
    _PLANNER,
    "Ticks that failed because neither Redis nor SQL was available.",
)
PLANNER_SWITCHES = _metric(
    "planner", "planner_mode_switches_total", "counter", _PLANNER, "Switches from Redis to SQL, or back."
)
PLANNER_MISSED = _metric(
    "planner", "planner_missed_writes_total", "counter", _PLANNER, "Writes that did not reach Redis."
)
PLANNER_CANDIDATES = _metric(
    "planner", "planner_last_tick_candidates", "gauge", _PLANNER, "Users that the last tick found due."
)
PLANNER_DURATION = _metric(
    "planner", "planner_last_tick_duration_seconds", "gauge", _PLANNER, "Duration of the last tick."
)
PLANNER_LAST = _metric(
    "planner", "planner_last_tick_timestamp_seconds", "gauge", _PLANNER, "Unix time of the last tick."
)
PLANNER_ENQUEUED = _metric(
    "planner",
    "planner_enqueued_users",
    "gauge",
    _PLANNER,
    "Users enqueued for a worker and not finished.",
    shared=True,
)

SERVER_MEMORY = _metric("servers", "server_memory_bytes", "gauge", _SERVER, "Memory in use.", shared=True)
SERVER_MEMORY_LIMIT = _metric(
    "servers", "server_memory_limit_bytes", "gauge", _SERVER, "maxmemory; 0 is no limit.", shared=True
)
SERVER_KEYS = _metric(
    "servers", "server_keys", "gauge", _SERVER, "Keys in the store's database.", shared=True
)
SERVER_CLIENTS = _metric("servers", "server_clients", "gauge", _SERVER, "Connected clients.", shared=True)
SERVER_EVICTED = _metric(
    "servers",
    "server_evicted_keys_total",
    "counter",
    _SERVER,
    "Keys evicted because memory was full.",
    shared=True,
)
SERVER_EXPIRED = _metric(
    "servers", "server_expired_keys_total", "counter", _SERVER, "Keys that expired.", shared=True
)
SERVER_HITS = _metric(
    "servers",
    "server_hits_total",
    "counter",
    _SERVER,
    "Lookups by all clients that found a key.",
    shared=True,
)
SERVER_MISSES = _metric(
    "servers",
    "server_misses_total",
    "counter",
    _SERVER,
    "Lookups by all clients that found no key.",
    shared=True,
)
SERVER_COMMANDS = _metric(
    "servers", "server_commands_total", "counter", _SERVER, "Commands of all clients.", shared=True
)
SERVER_REFUSED = _metric(
    "servers", "server_refused_connections_total", "counter", _SERVER, "Connections refused.", shared=True
)
SERVER_UPTIME = _metric(
    "servers", "server_uptime_seconds", "gauge", _SERVER, "Seconds since the server started.", shared=True
)

_SOURCE = ("source",)
SAMPLE_AGE = _metric(
    "samples", "sample_age_seconds", "gauge", _SOURCE,
    "Age of the oldest sample of a source: servers, streams, backlogs, jobs or planners.",
)  # fmt: skip
SAMPLE_FAILURES = _metric("samples", "sample_failures_total", "counter", _SOURCE, "Samples that failed.")

HTTP_REQUESTS = Metric(
    "requests",
    "ephemera_http_request_duration_seconds",
    "histogram",
    ("method", "route", "status"),
    "Time until a response started, by the route's pattern.",
)
"""The requests of a service, which measures them itself."""
SQL_CONNECTIONS = Metric(
    "requests",
    "ephemera_sql_connections",
    "gauge",
    ("state",),
    "Connections of the SQL pool: used, idle, or limit.",
)
"""The connections of a service's SQL pool; on the dashboard with `http=True`, as requests are."""
