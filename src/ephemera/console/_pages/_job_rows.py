"""A job as a row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ephemera.console._components._cards import Tone
from ephemera.console._formats import NO_VALUE, format_age, format_seconds, format_time, seconds_since
from ephemera.operations.formatting import format_latency

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.operations.inspect import JobCounts
    from ephemera.patterns.jobs import JobRow, QueueStats, ScheduleRow

TONES: dict[str, Tone] = {
    "running": "info",
    "waiting": "plain",
    "done": "good",
    "failed": "bad",
    "dead": "bad",
    "cancelled": "warn",
}
FILTERS = {
    "all": (),
    "open": ("waiting", "running"),
    "failed or dead": ("failed", "dead"),
    **{state: (state,) for state in TONES},
}
"""The choices of the state filter."""

_MAX_PERCENT = 95  # of a running job with more steps than usual
_SHORT = 8  # characters of an id
_SHORT_ERROR = 90


def job_row(of: str, row: JobRow, counts: JobCounts) -> dict[str, Any]:
    """The row of a job."""
    percent, text = progress(row, counts.usual_steps.get(row.kind, 0))
    age = seconds_since(row.created_at, counts.now)
    error = (row.error or "").partition("\n")[0]
    delayed = row.state == "waiting" and row.available_at > counts.now
    lease = row.lease_until if row.state == "running" else None  # a cancelled attempt keeps its lease
    failed = row.state in ("failed", "dead") and error
    return {
        "id": f"{of}/{row.id}",
        "of": of,
        "job": row.id,
        "kind": row.kind,
        "short": row.id[:_SHORT],
        "name": f"{row.kind} {row.id[:_SHORT]}{_options(row)}",
        "state": "delayed" if delayed else row.state,
        "state_tone": TONES[row.state],
        "progress": percent,
        "progress_text": text,
        "step": error[:_SHORT_ERROR] if failed else row.step or "",
        "worker": _short_worker(row.worker or ""),
        **_lease_or_due(row.available_at if delayed else lease, counts.now, delayed=delayed),
        "attempts": row.attempts,
        "age": format_age(row.created_at, counts.now),
        "age_sort": age,
        "actions": ["retry"]
        if row.state in ("failed", "dead", "cancelled")
        else ["cancel"]
        if not row.ended
        else [],
    }


def short_names(names: Sequence[str]) -> dict[str, str]:
    """What distinguishes names `service/jobs`: nothing if there is one, the service if that is enough."""
    services = {name.partition("/")[0] for name in names}
    if len(names) == 1:
        return dict.fromkeys(names, "")
    return {name: name.partition("/")[0] if len(services) == len(names) else name for name in names}


def queue_name(short: str, queue: str) -> str:
    """The name of a queue as it is shown."""
    return f"{short}/{queue}" if short else queue


def queue_row(of: str, short: str, stats: QueueStats) -> dict[str, Any]:
    """The row of a queue."""
    settings = stats.settings
    limits = [] if settings.max_running is None else [f"{settings.max_running} at once"]
    if settings.rate is not None:
        limits.append(f"{settings.rate[0]} in {format_seconds(settings.rate[1].total_seconds())}")
    return {
        "id": f"{of}/{stats.queue}",
        "of": of,
        "queue": stats.queue,
        "name": queue_name(short, stats.queue),
        "state": "paused" if settings.paused else "open",
        "state_tone": "warn" if settings.paused else "good",
        "waiting": stats.waiting,
        "delayed": stats.delayed,
        "running": stats.running,
        "ended": sum(stats.per_minute),
        "wait": _percentiles(stats.wait),
        "wait_sort": stats.wait[1] if stats.wait else 0,
        "run": _percentiles(stats.run),
        "run_sort": stats.run[1] if stats.run else 0,
        "limits": ", ".join(map(_unbroken, limits)) or NO_VALUE,
        "actions": ["resume" if settings.paused else "pause"],
    }


def _percentiles(found: tuple[float, float] | None) -> str:
    return NO_VALUE if found is None else " / ".join(_unbroken(format_latency(each)) for each in found)


def _unbroken(text: str) -> str:
    """A text that stays on one line in a narrow column."""
    return text.replace(" ", "\u00a0")


def schedule_row(of: str, schedule: ScheduleRow, now: datetime) -> dict[str, Any]:
    """The row of a schedule."""
    due = (schedule.next_run_at - now).total_seconds()
    return {
        "id": f"{of}/{schedule.name}",
        "name": schedule.name,
        "kind": schedule.kind,
        "definition": schedule.definition,
        "next": f"{format_time(schedule.next_run_at)} ({format_in(due)})",
        "next_sort": due,
        "last": NO_VALUE if schedule.last_run_at is None else format_age(schedule.last_run_at, now),
        "last_sort": 0 if schedule.last_run_at is None else seconds_since(schedule.last_run_at, now),
        "job": (schedule.last_job_id or "")[:_SHORT],
    }


def _short_worker(worker: str) -> str:
    """The host and the process, without the token between them: host/token:process."""
    host, slash, rest = worker.partition("/")
    return f"{host}:{rest.rpartition(':')[2]}" if slash else worker


def _options(row: JobRow) -> str:
    """How a job was enqueued, if not in the usual way."""
    options = [f"priority {row.priority}"] if row.priority else []
    if row.unique_key:
        options.append("unique")
    return f" ({', '.join(options)})" if options else ""


def _lease_or_due(until: datetime | None, now: datetime, *, delayed: bool) -> dict[str, Any]:
    """How long a worker has the job for, or when a delayed job is due."""
    left = 0.0 if until is None else (until - now).total_seconds()
    text = format_in(left) if delayed else format_seconds(left) if left > 0 else "expired"
    return {"lease": "" if until is None else text, "lease_sort": left}


def format_in(seconds: float) -> str:
    """How far away a moment is: 'in 5 min', 'overdue by 3 s'."""
    return f"in {format_seconds(seconds)}" if seconds > 0 else f"overdue by {format_seconds(-seconds)}"


def progress(row: JobRow, usual: int) -> tuple[int, str]:
    """The progress of a job as percentage and text, relative to the usual number of steps of its kind."""
    if row.state == "done":
        return 100, f"{row.steps} steps" if row.steps != 1 else "1 step"
    if not usual:
        return 0, f"step {row.steps}" if row.steps else ""
    return min(_MAX_PERCENT, 100 * row.steps // usual), f"{row.steps} of about {max(usual, row.steps)}"
