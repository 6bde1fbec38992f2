"""The panels of a dashboard: queries built from declared metrics, so they cannot name others.

What each process counts is summed over processes; of what all of them read from the same server or database,
the maximum is used. A label that a metric does not have is refused.
"""

from __future__ import annotations

from typing import NamedTuple

from ephemera.errors import InvalidValue
from ephemera.operations.metrics import _families as f
from ephemera.operations.metrics._families import Metric, Section


class Query(NamedTuple):
    """A PromQL expression and its legend."""

    expression: str
    legend: str


class Panel(NamedTuple):
    """One panel."""

    section: Section
    title: str
    unit: str
    queries: tuple[Query, ...]


def rate(metric: Metric, *by: str, legend: str = "") -> Query:
    """The growth of a counter per second."""
    return Query(f"{_total(metric, by)} (rate({_selector(metric)}[$__rate_interval]))", _legend(by, legend))


def level(metric: Metric, *by: str, legend: str = "") -> Query:
    """The value of a gauge."""
    return Query(f"{_total(metric, by)} ({_selector(metric)})", _legend(by, legend))


def worst(metric: Metric, *by: str, legend: str = "") -> Query:
    """The highest value of a gauge that processes have each for itself, such as an age."""
    query = level(metric, *by, legend=legend)
    return Query(query.expression.replace("sum by", "max by", 1), query.legend)


def quantile(share: float, metric: Metric, *by: str) -> Query:
    """A percentile of a histogram."""
    total = _total(metric, ("le", *by))
    growth = f"rate({_selector(metric, '_bucket')}[$__rate_interval])"
    return Query(f"histogram_quantile({share}, {total} ({growth}))", _legend(by, f"p{share * 100:g}"))


def ratio(part: Metric, rest: Metric, *by: str, legend: str = "") -> Query:
    """The first counter's share of the growth of both."""
    one, other = rate(part, *by).expression, rate(rest, *by).expression
    return Query(f"{one} / ({one} + {other})", _legend(by, legend))


def _total(metric: Metric, by: tuple[str, ...]) -> str:
    unknown = set(by) - {*metric.labels, "le"}
    if unknown:
        raise InvalidValue(metric.name, f"labels among {', '.join(metric.labels)}", ", ".join(unknown))
    return f"{'max' if metric.shared else 'sum'} by ({', '.join(by)})"


def _selector(metric: Metric, suffix: str = "") -> str:
    selectors = ['job=~"$job"']
    if "keyspace" in metric.labels:
        selectors.append('keyspace=~"$keyspace"')
    return f"{metric.name}{suffix}{{{', '.join(selectors)}}}"


def _legend(by: tuple[str, ...], legend: str) -> str:
    return " ".join([*(f"{{{{{label}}}}}" for label in by), *([legend] if legend else [])])


def _panel(section: Section, title: str, unit: str, *queries: Query) -> Panel:
    return Panel(section, title, unit, queries)


PANELS = (
    _panel("keyspaces", "Hit ratio", "percentunit", ratio(f.KEYSPACE_HITS, f.KEYSPACE_MISSES, "keyspace")),
    _panel(
        "keyspaces",
        "Reads",
        "ops",
        rate(f.KEYSPACE_HITS, "keyspace", legend="hits"),
        rate(f.KEYSPACE_MISSES, "keyspace", legend="misses"),
    ),
    _panel("keyspaces", "Writes", "ops", rate(f.KEYSPACE_WRITES, "keyspace")),
    _panel(
        "keyspaces",
        "Errors and undecodable values",
        "ops",
        rate(f.KEYSPACE_ERRORS, "keyspace", legend="errors"),
        rate(f.KEYSPACE_UNDECODABLE, "keyspace", legend="undecodable"),
    ),
    _panel(
        "keyspaces",
        "Latency by keyspace",
        "s",
        quantile(0.5, f.KEYSPACE_DURATION, "keyspace"),
        quantile(0.99, f.KEYSPACE_DURATION, "keyspace"),
    ),
    _panel("keyspaces", "Bytes read", "Bps", rate(f.KEYSPACE_READ_BYTES, "keyspace")),
    _panel("keyspaces", "Bytes written", "Bps", rate(f.KEYSPACE_WRITTEN_BYTES, "keyspace")),
    _panel("connections", "Connected processes", "short", level(f.CONNECTION_UP, "server")),
    _panel(
        "connections",
        "Call latency",
        "s",
        quantile(0.5, f.CALL_DURATION, "server"),
        quantile(0.99, f.CALL_DURATION, "server"),
    ),
    _panel(
        "connections",
        "Reconnections and calls in flight",
        "short",
        rate(f.RECONNECTIONS, "server", legend="reconnections/s"),
        level(f.IN_FLIGHT, "server", legend="in flight"),
    ),
    _panel("local-cache", "Local cache entries", "short", level(f.LOCAL_ENTRIES, "keyspace")),
    _panel("local-cache", "Local cache memory", "bytes", level(f.LOCAL_BYTES, "keyspace")),
    _panel("local-cache", "Local cache evictions", "ops", rate(f.LOCAL_EVICTIONS, "keyspace")),
    _panel("limits", "Decisions", "ops", rate(f.LIMIT_DECISIONS, "rule", "decision")),
    _panel("locks", "Locks held", "short", level(f.LOCKS_HELD, "keyspace")),
    _panel("locks", "Locks acquired", "ops", rate(f.LOCKS_ACQUIRED, "keyspace")),
    _panel("locks", "Locks lost", "ops", rate(f.LOCKS_LOST, "keyspace")),
    _panel(
        "events",
        "Lag and pending",
        "short",
        level(f.STREAM_LAG, "keyspace", "group", legend="lag"),
        level(f.STREAM_PENDING, "keyspace", "group", legend="pending"),
        level(f.STREAM_PAUSED, "keyspace", "group", legend="paused"),
    ),
    _panel(
        "events",
        "Handled and failed",
        "ops",
        rate(f.EVENTS_HANDLED, "keyspace", "group", legend="handled"),
        rate(f.EVENTS_FAILED, "keyspace", "group", legend="failed"),
        rate(f.EVENTS_DEAD, "keyspace", "group", legend="dead"),
        rate(f.EVENTS_DROPPED, "keyspace", "group", legend="dropped"),
    ),
    _panel(
        "events",
        "Dead letters and stream length",
        "short",
        level(f.STREAM_DEAD, "keyspace", legend="dead letters"),
        level(f.STREAM_LENGTH, "keyspace", legend="events"),
    ),
    _panel("jobs", "Waiting and running jobs", "short", level(f.JOBS_OPEN, "queue", "kind", "state")),
    _panel("jobs", "Running jobs by last step", "short", level(f.JOBS_AT_STEP, "kind", "step")),
    _panel("jobs", "Longest wait", "s", level(f.JOBS_WAIT, "queue")),
    _panel("jobs", "Jobs finished", "ops", rate(f.JOBS_FINISHED, "kind", "state")),
    _panel(
        "jobs",
        "Job duration",
        "s",
        quantile(0.5, f.JOB_DURATION, "kind"),
        quantile(0.95, f.JOB_DURATION, "kind"),
    ),
    _panel(
        "write-behind",
        "Backlog",
        "short",
        level(f.BACKLOG, "queue", legend="waiting"),
        level(f.BACKLOG_LIMIT, "queue", legend="limit"),
    ),
    _panel("write-behind", "Age of the oldest entry", "s", level(f.BACKLOG_AGE, "queue")),
    _panel("planner", "Processes by mode", "short", level(f.PLANNER_MODE, "planner", "mode")),
    _panel(
        "planner",
        "Ticks",
        "ops",
        rate(f.PLANNER_TICKS, "planner", legend="ticks"),
        rate(f.PLANNER_FAILED, "planner", legend="failed"),
        rate(f.PLANNER_SWITCHES, "planner", legend="mode switches"),
    ),
    _panel(
        "planner",
        "Candidates and enqueued users",
        "short",
        level(f.PLANNER_CANDIDATES, "planner", legend="candidates"),
        level(f.PLANNER_ENQUEUED, "planner", legend="enqueued"),
    ),
    _panel(
        "servers",
        "Memory",
        "bytes",
        level(f.SERVER_MEMORY, "server", legend="used"),
        level(f.SERVER_MEMORY_LIMIT, "server", legend="limit"),
    ),
    _panel(
        "servers",
        "Evicted and expired keys",
        "ops",
        rate(f.SERVER_EVICTED, "server", legend="evicted"),
        rate(f.SERVER_EXPIRED, "server", legend="expired"),
    ),
    _panel(
        "servers",
        "Clients",
        "short",
        level(f.SERVER_CLIENTS, "server", legend="connected"),
        rate(f.SERVER_REFUSED, "server", legend="refused/s"),
    ),
    _panel("servers", "Commands", "ops", rate(f.SERVER_COMMANDS, "server")),
    _panel("servers", "Server hit ratio", "percentunit", ratio(f.SERVER_HITS, f.SERVER_MISSES, "server")),
    _panel("servers", "Keys", "short", level(f.SERVER_KEYS, "server")),
    _panel("samples", "Age of samples", "s", worst(f.SAMPLE_AGE, "source")),
    _panel("samples", "Failed samples", "ops", rate(f.SAMPLE_FAILURES, "source")),
)
"""Every panel, in the order of the dashboard."""


def _requests(legend: str, *by: str, status: str = ".*") -> Query:
    selector = f'{f.HTTP_REQUESTS.name}_count{{job=~"$job", status=~"{status}"}}'
    return Query(f"sum by ({', '.join(by)}) (rate({selector}[$__rate_interval]))", legend)


HTTP_PANELS = (
    _panel("requests", "Requests by status", "ops", _requests("{{status}}", "status")),
    _panel(
        "requests",
        "Server errors",
        "ops",
        _requests("{{route}} {{status}}", "route", "status", status="5.."),
    ),
    _panel(
        "requests",
        "Time until a response starts",
        "s",
        quantile(0.5, f.HTTP_REQUESTS),
        quantile(0.99, f.HTTP_REQUESTS),
    ),
    _panel("requests", "SQL connections", "short", level(f.SQL_CONNECTIONS, "state")),
)
"""The panels of what a service measures beside its store."""
