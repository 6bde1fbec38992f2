"""Every metric there is: its name, type, labels and meaning, declared once.

The scrape, the reference in the documentation and the Grafana dashboard are all made from these, so none of
them can name a metric that is not there. Units are base units, in the name; labels take few values: patterns,
rules, groups, kinds, states and servers, never ids. What is `shared` is read from a server or a database, and
every process shows the same: take the largest of them, not the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Part: TypeAlias = Literal[
    "keyspaces", "connections", "copies", "limits", "locks", "events", "jobs", "write-behind", "planner",
    "servers", "samples",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric; compared by identity, which is quick."""

    part: Part
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    shared: bool = False


class Buckets(NamedTuple):
    """The value of a histogram: how many in each class, the last one without an end, and their sum."""

    ends: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float


class Sample(NamedTuple):
    """One value of a metric, for the values of its labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Buckets


METRICS: list[Metric] = []
"""All of them, in the order of the reference."""


def _metric(
    part: Part, name: str, kind: Kind, labels: tuple[str, ...], means: str, *, shared: bool = False
) -> Metric:
    metric = Metric(part, f"ephemera_{name}", kind, labels, means, shared)
    METRICS.append(metric)
    return metric


_SPACE = ("space",)
SPACE_HITS = _metric("keyspaces", "space_hits_total", "counter", _SPACE, "Reads that found a value.")
SPACE_MISSES = _metric("keyspaces", "space_misses_total", "counter", _SPACE, "Reads that found none.")
SPACE_UNDECODABLE = _metric(
    "keyspaces", "space_undecodable_total", "counter", _SPACE,
    "Stored values that are not of the declared type; they read as misses.",
)  # fmt: skip
SPACE_WRITES = _metric("keyspaces", "space_writes_total", "counter", _SPACE, "Writes and deletions.")
SPACE_ERRORS = _metric(
    "keyspaces", "space_errors_total", "counter", _SPACE, "Operations that failed: server away, or refused."
)
SPACE_READ_BYTES = _metric(
    "keyspaces", "space_read_bytes_total", "counter", _SPACE, "Bytes of stored values that were read."
)
SPACE_WRITTEN_BYTES = _metric(
    "keyspaces",
    "space_written_bytes_total",
    "counter",
    _SPACE,
    "Bytes of values that were sent to be stored.",
)

_SERVER = ("server",)
CONNECTION_UP = _metric(
    "connections", "connection_up", "gauge", _SERVER, "1 while calls are taken, 0 while the server is away."
)
RECONNECTIONS = _metric(
    "connections", "reconnections_total", "counter", _SERVER, "Connections made after the first."
)
IN_FLIGHT = _metric(
    "connections", "calls_in_flight", "gauge", _SERVER, "Commands that were sent and not answered yet."
)
CALL_DURATION = _metric(
    "connections", "call_duration_seconds", "histogram", _SERVER,
    "Time from a write to the last reply to its commands.",
)  # fmt: skip

COPIES = _metric("copies", "local_copies", "gauge", _SPACE, "Entries kept in this process.")
COPIES_BYTES = _metric("copies", "local_copies_bytes", "gauge", _SPACE, "Memory that they take, about.")
COPIES_EVICTED = _metric(
    "copies", "local_evictions_total", "counter", _SPACE, "Entries dropped here for want of room."
)

LIMIT_DECISIONS = _metric(
    "limits", "limit_decisions_total", "counter", ("rule", "decision"),
    "Checks by what a rule decided: allowed, denied, remembered (denied without asking the server), "
    "or degraded (by its policy, the server being away).",
)  # fmt: skip

LOCKS_HELD = _metric("locks", "locks_held", "gauge", _SPACE, "Locks that this process holds.")
LOCKS_TAKEN = _metric("locks", "locks_taken_total", "counter", _SPACE, "Locks taken.")
LOCKS_LOST = _metric("locks", "locks_lost_total", "counter", _SPACE, "Locks lost before they were given up.")

_GROUP = ("space", "group")
EVENTS_HANDLED = _metric("events", "events_handled_total", "counter", _GROUP, "Attempts that went well.")
EVENTS_FAILED = _metric("events", "events_failed_total", "counter", _GROUP, "Attempts that did not.")
EVENTS_DEAD = _metric("events", "events_dead_total", "counter", _GROUP, "Events made dead letters.")
STREAM_LENGTH = _metric("events", "stream_length", "gauge", _SPACE, "Events in streams.", shared=True)
STREAM_DEAD = _metric(
    "events", "stream_dead_letters", "gauge", _SPACE, "Dead letters that wait for a replay.", shared=True
)
STREAM_LAG = _metric(
    "events", "stream_lag", "gauge", _GROUP, "Events that were not delivered to the group yet.", shared=True
)
STREAM_PENDING = _metric(
    "events", "stream_pending", "gauge", _GROUP,
    "Events that were delivered and not acknowledged: at work, or waiting for a retry.", shared=True,
)  # fmt: skip
STREAM_CONSUMERS = _metric(
    "events", "stream_consumers", "gauge", _GROUP, "Consumers in the group.", shared=True
)

JOBS_OPEN = _metric(
    "jobs", "jobs_open", "gauge", ("queue", "kind", "state"), "Jobs that wait or run.", shared=True
)
JOBS_AT_STEP = _metric(
    "jobs", "jobs_at_step", "gauge", ("kind", "step"),
    "Running jobs by the step that they recorded last; digits in its name are shown as #.", shared=True,
)  # fmt: skip
JOBS_WAIT = _metric(
    "jobs", "jobs_oldest_wait_seconds", "gauge", ("queue",),
    "How long the job that waits longest is due.", shared=True,
)  # fmt: skip
JOBS_ENDED = _metric(
    "jobs", "jobs_ended_total", "counter", ("kind", "state"),
    "Jobs that ended since this process looks: done, failed, cancelled or dead.", shared=True,
)  # fmt: skip
JOB_DURATION = _metric(
    "jobs", "job_duration_seconds", "histogram", ("kind",),
    "Time from the first attempt's beginning to the end.", shared=True,
)  # fmt: skip

_QUEUE = ("queue",)
BACKLOG = _metric(
    "write-behind", "write_behind_backlog", "gauge", _QUEUE, "Counters or records that wait for SQL.",
    shared=True,
)  # fmt: skip
BACKLOG_LIMIT = _metric(
    "write-behind", "write_behind_backlog_limit", "gauge", _QUEUE,
    "How many may wait before more are refused.", shared=True,
)  # fmt: skip
BACKLOG_AGE = _metric(
    "write-behind", "write_behind_age_seconds", "gauge", _QUEUE,
    "How long the oldest waits; of a batch on its way, since it was sealed.", shared=True,
)  # fmt: skip

_PLANNER = ("planner",)
PLANNER_MODE = _metric(
    "planner", "planner_mode", "gauge", ("planner", "mode"), "1 for what the last tick read: redis or sql."
)
PLANNER_TICKS = _metric("planner", "planner_ticks_total", "counter", _PLANNER, "Ticks that ended well.")
PLANNER_FAILED = _metric(
    "planner", "planner_failed_ticks_total", "counter", _PLANNER, "Ticks that neither Redis nor SQL allowed."
)
PLANNER_SWITCHES = _metric(
    "planner", "planner_mode_switches_total", "counter", _PLANNER, "Changes from Redis to SQL, or back."
)
PLANNER_MISSED = _metric(
    "planner", "planner_missed_writes_total", "counter", _PLANNER, "Writes that Redis did not hear of."
)
PLANNER_CANDIDATES = _metric(
    "planner", "planner_last_tick_candidates", "gauge", _PLANNER, "Users that the last tick found due."
)
PLANNER_DURATION = _metric(
    "planner", "planner_last_tick_duration_seconds", "gauge", _PLANNER, "How long the last tick took."
)
PLANNER_LAST = _metric(
    "planner", "planner_last_tick_timestamp_seconds", "gauge", _PLANNER, "When it was, since 1970."
)
PLANNER_QUEUE = _metric(
    "planner", "planner_handed_over", "gauge", _PLANNER, "Users handed over and not done with.", shared=True
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
    "Keys evicted for want of memory.",
    shared=True,
)
SERVER_EXPIRED = _metric(
    "servers", "server_expired_keys_total", "counter", _SERVER, "Keys whose life ended.", shared=True
)
SERVER_HITS = _metric(
    "servers",
    "server_hits_total",
    "counter",
    _SERVER,
    "Lookups that found a key, of all clients.",
    shared=True,
)
SERVER_MISSES = _metric(
    "servers",
    "server_misses_total",
    "counter",
    _SERVER,
    "Lookups that found none, of all clients.",
    shared=True,
)
SERVER_COMMANDS = _metric(
    "servers", "server_commands_total", "counter", _SERVER, "Commands, of all clients.", shared=True
)
SERVER_REFUSED = _metric(
    "servers", "server_refused_connections_total", "counter", _SERVER, "Connections refused.", shared=True
)
SERVER_UPTIME = _metric(
    "servers", "server_uptime_seconds", "gauge", _SERVER, "How long it runs.", shared=True
)

_SOURCE = ("source",)
SAMPLE_AGE = _metric(
    "samples", "sample_age_seconds", "gauge", _SOURCE,
    "How old what is sampled is: servers, streams, backlogs, jobs and planners.",
)  # fmt: skip
SAMPLE_FAILURES = _metric(
    "samples", "sample_failures_total", "counter", _SOURCE, "Samples that could not be taken."
)
