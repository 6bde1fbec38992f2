"""A job as a row of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ephemera.console._components._cards import Tone
from ephemera.console._formats import format_age, format_seconds, seconds_since

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.operations.inspect import JobCounts
    from ephemera.patterns.jobs import JobRow

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
    lease = None if row.lease_until is None else (row.lease_until - counts.now).total_seconds()
    percent, text = progress(row, counts.usual_steps.get(row.kind, 0))
    age = seconds_since(row.created_at, counts.now)
    error = (row.error or "").partition("\n")[0]
    failed = row.state in ("failed", "dead") and error
    return {
        "id": f"{of}/{row.id}",
        "of": of,
        "job": row.id,
        "kind": row.kind,
        "short": row.id[:_SHORT],
        "name": f"{row.kind} {row.id[:_SHORT]}",
        "state": row.state,
        "state_tone": TONES[row.state],
        "progress": percent,
        "progress_text": text,
        "step": error[:_SHORT_ERROR] if failed else row.step or "",
        "worker": row.worker or "",
        "lease": "" if lease is None else format_seconds(lease) if lease > 0 else "expired",
        "lease_sort": lease or 0,
        "attempts": row.attempts,
        "age": format_age(row.created_at, counts.now),
        "age_sort": age,
        "actions": ["retry"]
        if row.state in ("failed", "dead", "cancelled")
        else ["cancel"]
        if not row.ended
        else [],
    }


def progress(row: JobRow, usual: int) -> tuple[int, str]:
    """The progress of a job as percentage and text, relative to the usual number of steps of its kind."""
    if row.state == "done":
        return 100, f"{row.steps} steps" if row.steps != 1 else "1 step"
    if not usual:
        return 0, f"step {row.steps}" if row.steps else ""
    return min(_MAX_PERCENT, 100 * row.steps // usual), f"{row.steps} of about {max(usual, row.steps)}"
