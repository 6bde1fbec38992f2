"""The plots of a dashboard: queries that are built from declared metrics, so that they cannot name others.

What each process counts is summed over processes; what all of them read from the same server or database is
one figure, the largest. A label that a metric does not have is refused.
"""

from __future__ import annotations

from typing import NamedTuple

from ephemera.errors import InvalidValue
from ephemera.operations.metrics import _families as f
from ephemera.operations.metrics._families import Metric, Part


class Query(NamedTuple):
    """A PromQL expression, and what its lines are called."""

    expression: str
    legend: str


class Panel(NamedTuple):
    """One plot."""

    part: Part
    title: str
    unit: str
    queries: tuple[Query, ...]


def rate(metric: Metric, *by: str, legend: str = "") -> Query:
    """How fast a counter grows, a second."""
    return Query(f"{_total(metric, by)} (rate({_selected(metric)}[$__rate_interval]))", _legend(by, legend))


def level(metric: Metric, *by: str, legend: str = "") -> Query:
    """What a gauge says."""
    return Query(f"{_total(metric, by)} ({_selected(metric)})", _legend(by, legend))


def quantile(share: float, metric: Metric, *by: str) -> Query:
    """A percentile of a histogram."""
    of = _total(metric, ("le", *by))
    grown = f"rate({_selected(metric, '_bucket')}[$__rate_interval])"
    return Query(f"histogram_quantile({share}, {of} ({grown}))", _legend(by, f"p{share * 100:g}"))


def ratio(part: Metric, rest: Metric, *by: str, legend: str = "") -> Query:
    """What share of two counters' growth is the first one's."""
    one, other = rate(part, *by).expression, rate(rest, *by).expression
    return Query(f"{one} / ({one} + {other})", _legend(by, legend))


def _total(metric: Metric, by: tuple[str, ...]) -> str:
    unknown = set(by) - {*metric.labels, "le"}
    if unknown:
        raise InvalidValue(metric.name, f"labels among {', '.join(metric.labels)}", ", ".join(unknown))
    return f"{'max' if metric.shared else 'sum'} by ({', '.join(by)})"


def _selected(metric: Metric, suffix: str = "") -> str:
    chosen = ['job=~"$job"']
    if "space" in metric.labels:
        chosen.append('space=~"$space"')
    return f"{metric.name}{suffix}{{{', '.join(chosen)}}}"


def _legend(by: tuple[str, ...], legend: str) -> str:
    return " ".join([*(f"{{{{{label}}}}}" for label in by), *([legend] if legend else [])])


def _panel(part: Part, title: str, unit: str, *queries: Query) -> Panel:
    return Panel(part, title, unit, queries)


PANELS = (
    _panel("keyspaces", "Hit ratio", "percentunit", ratio(f.SPACE_HITS, f.SPACE_MISSES, "space")),
    _panel(
        "keyspaces",
        "Reads",
        "ops",
        rate(f.SPACE_HITS, "space", legend="hits"),
        rate(f.SPACE_MISSES, "space", legend="misses"),
    ),
    _panel("keyspaces", "Writes", "ops", rate(f.SPACE_WRITES, "space")),
    _panel(
        "keyspaces",
        "Errors and undecodable values",
        "ops",
        rate(f.SPACE_ERRORS, "space", legend="errors"),
        rate(f.SPACE_UNDECODABLE, "space", legend="undecodable"),
    ),
    _panel("keyspaces", "Bytes read", "Bps", rate(f.SPACE_READ_BYTES, "space")),
    _panel("keyspaces", "Bytes written", "Bps", rate(f.SPACE_WRITTEN_BYTES, "space")),
    _panel("connections", "Connected processes", "short", level(f.CONNECTION_UP, "server")),
    _panel(
        "connections",
        "Latency of calls",
        "s",
        quantile(0.5, f.CALL_DURATION, "server"),
        quantile(0.99, f.CALL_DURATION, "server"),
    ),
    _panel(
        "connections",
        "Reconnections, and calls in flight",
        "short",
        rate(f.RECONNECTIONS, "server", legend="reconnections/s"),
        level(f.IN_FLIGHT, "server", legend="in flight"),
    ),
    _panel("copies", "Local copies", "short", level(f.COPIES, "space")),
    _panel("copies", "Memory of local copies", "bytes", level(f.COPIES_BYTES, "space")),
    _panel("copies", "Local evictions", "ops", rate(f.COPIES_EVICTED, "space")),
    _panel("limits", "Decisions", "ops", rate(f.LIMIT_DECISIONS, "rule", "decision")),
    _panel("locks", "Locks held", "short", level(f.LOCKS_HELD, "space")),
    _panel("locks", "Locks taken", "ops", rate(f.LOCKS_TAKEN, "space")),
    _panel("locks", "Locks lost", "ops", rate(f.LOCKS_LOST, "space")),
    _panel(
        "events",
        "Lag and pending",
        "short",
        level(f.STREAM_LAG, "space", "group", legend="lag"),
        level(f.STREAM_PENDING, "space", "group", legend="pending"),
    ),
    _panel(
        "events",
        "Handled and failed",
        "ops",
        rate(f.EVENTS_HANDLED, "space", "group", legend="handled"),
        rate(f.EVENTS_FAILED, "space", "group", legend="failed"),
        rate(f.EVENTS_DEAD, "space", "group", legend="dead"),
    ),
    _panel(
        "events",
        "Dead letters, and events in streams",
        "short",
        level(f.STREAM_DEAD, "space", legend="dead letters"),
        level(f.STREAM_LENGTH, "space", legend="events"),
    ),
    _panel("jobs", "Jobs that wait and run", "short", level(f.JOBS_OPEN, "queue", "kind", "state")),
    _panel("jobs", "Running jobs by their last step", "short", level(f.JOBS_AT_STEP, "kind", "step")),
    _panel("jobs", "Longest wait", "s", level(f.JOBS_WAIT, "queue")),
    _panel("jobs", "Jobs ended", "ops", rate(f.JOBS_ENDED, "kind", "state")),
    _panel(
        "jobs",
        "Duration of jobs",
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
    _panel("write-behind", "Age of the oldest", "s", level(f.BACKLOG_AGE, "queue")),
    _panel("planner", "Mode, in processes", "short", level(f.PLANNER_MODE, "planner", "mode")),
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
        "Candidates and handed over",
        "short",
        level(f.PLANNER_CANDIDATES, "planner", legend="candidates"),
        level(f.PLANNER_QUEUE, "planner", legend="handed over"),
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
    _panel(
        "servers", "Hit ratio of the server", "percentunit", ratio(f.SERVER_HITS, f.SERVER_MISSES, "server")
    ),
    _panel("servers", "Keys", "short", level(f.SERVER_KEYS, "server")),
    _panel("samples", "Age of samples", "s", level(f.SAMPLE_AGE, "source")),
    _panel("samples", "Samples that failed", "ops", rate(f.SAMPLE_FAILURES, "source")),
)
"""Every plot there is, in the order of the dashboard."""
