"""The details of one job: its row, error, arguments, and steps with their results."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ephemera.console._components import Column, Empty, badge, facts, section, table, text_block
from ephemera.console._components._drawers import Drawer
from ephemera.console._connections import Service
from ephemera.console._formats import NO_VALUE, format_time
from ephemera.console._pages._job_rows import TONES
from ephemera.console._sources import database_errors
from ephemera.console._view import View
from ephemera.errors import DatabaseUnavailable

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.patterns.jobs import JobRow, Jobs

_MAX_RESULT = 200  # characters of a step's result


async def draw_details(view: View, panel: Drawer, service: Service, jobs: Jobs, job_id: str) -> None:
    """Show the current state of a job in SQL."""
    from ephemera.patterns.jobs import JobQueries

    rows = JobQueries(jobs.tables, service.database)
    try:
        with database_errors(service.name):
            row, steps = await rows.get(job_id), await rows.steps(job_id)
    except DatabaseUnavailable as error:
        view.notify(str(error), "bad")
        return
    if row is None:
        view.notify("The job no longer exists.", "warn")
        return
    with panel.open(f"{row.kind} {row.id}"):
        badge(row.state, TONES[row.state])
        facts(_facts(service, row))
        if row.error:
            with section("Error of the last attempt"):
                text_block(row.error)
        with section("Arguments"):
            text_block(_json(row.arguments))
        if row.result is not None:
            with section("Result"):
                text_block(_json(row.result))
        with section("Steps"):
            _steps(steps)


def _facts(service: Service, row: JobRow) -> list[tuple[str, str]]:
    return [
        ("Service", service.name),
        ("Queue", row.queue),
        ("Priority", str(row.priority)),
        ("Unique key", row.unique_key or NO_VALUE),
        ("Not before", _when(row.available_at)),
        ("Attempts", str(row.attempts)),
        ("Worker", row.worker or "none yet"),
        ("Fencing token", str(row.fence)),
        ("Lease expires", _when(row.lease_until)),
        ("Created", _when(row.created_at)),
        ("Started", _when(row.started_at)),
        ("Ended", _when(row.finished_at)),
        ("on_finished due", _when(row.callback_due_at)),
    ]


def _steps(steps: dict[str, bytes]) -> None:
    listed = table(
        [Column("step", "Step"), Column("result", "Result", kind="mono")],
        empty=Empty(
            "No steps recorded",
            "If the job dies now, it restarts from the beginning.",
            icon="hourglass_empty",
        ),
        rows_per_page=50,
    )
    listed.show(
        [
            {"id": name, "step": name, "result": result.decode("utf-8", "replace")[:_MAX_RESULT]}
            for name, result in steps.items()
        ]
    )


def _when(moment: datetime | None) -> str:
    return NO_VALUE if moment is None else format_time(moment)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
