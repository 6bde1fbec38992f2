"""One job in the panel: its row, its error, its arguments, its steps and their results."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ephemera.console._components import Column, Empty, badge, facts, section, table, text_block
from ephemera.console._components._drawers import Drawer
from ephemera.console._connections import Place
from ephemera.console._moments import NOTHING, clock
from ephemera.console._pages._job_rows import TONES
from ephemera.console._sources import database_of
from ephemera.console._view import View
from ephemera.errors import DatabaseUnavailable

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.patterns.jobs import JobRow, Jobs

_RESULT = 200  # characters of a step's result


async def draw_details(view: View, panel: Drawer, place: Place, jobs: Jobs, job_id: str) -> None:
    """Show a job as SQL has it now."""
    from ephemera.patterns.jobs import JobQueries

    assert place.engine is not None  # noqa: S101 - others are not shown
    rows = JobQueries(jobs.tables, place.engine)
    try:
        with database_of(place.name):
            row, steps = await rows.get(job_id), await rows.steps(job_id)
    except DatabaseUnavailable as away:
        view.tell(str(away), "bad")
        return
    if row is None:
        view.tell("The job is not in the table any more.", "warn")
        return
    with panel.open(f"{row.kind} {row.id}"):
        badge(row.state, TONES[row.state])
        facts(_facts(place, row))
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


def _facts(place: Place, row: JobRow) -> list[tuple[str, str]]:
    return [
        ("Service", place.name),
        ("Queue", row.queue),
        ("Attempts", str(row.attempts)),
        ("Worker", row.worker or "none yet"),
        ("Fence", str(row.fence)),
        ("Lease until", _when(row.lease_until)),
        ("Created", _when(row.created_at)),
        ("First begun", _when(row.started_at)),
        ("Ended", _when(row.finished_at)),
    ]


def _steps(steps: dict[str, bytes]) -> None:
    listed = table(
        [Column("step", "Step"), Column("result", "Result", kind="mono")],
        empty=Empty("No step is recorded", "A job that dies now begins anew.", icon="hourglass_empty"),
        rows_per_page=50,
    )
    listed.show(
        [
            {"id": name, "step": name, "result": result.decode("utf-8", "replace")[:_RESULT]}
            for name, result in steps.items()
        ]
    )


def _when(moment: datetime | None) -> str:
    return NOTHING if moment is None else clock(moment)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
