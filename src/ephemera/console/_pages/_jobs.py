"""Jobs: progress, worker and errors; failed jobs can be retried, open ones cancelled."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import ui

from ephemera.console._components import (
    Action,
    Column,
    Empty,
    confirm_button,
    drawer,
    empty,
    problem,
    section,
    table,
    tile,
    tiles,
)
from ephemera.console._connections import Service
from ephemera.console._pages._job_details import draw_details
from ephemera.console._pages._job_rows import FILTERS, TONES, job_row
from ephemera.console._sources import RowSources, database_errors
from ephemera.console._view import ConsolePage, View
from ephemera.operations.inspect import declared_jobs

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.operations.inspect import JobCounts
    from ephemera.patterns.jobs import BoundJobs, JobRow, Jobs

_PAGE = 100  # jobs per database and page
_ANY = ""
_MAX_RETRIED = 1000


def build(view: View) -> None:
    """Draw the page."""
    declared = [
        (service, each)
        for service in view.services
        for catalogue in service.catalogues
        for each in declared_jobs(catalogue)
    ]
    if not declared:
        empty(
            "No jobs are declared",
            "Declare Jobs(catalogue, 'checkpoint:{job_id}', queues=(...)): see docs/patterns/jobs.md.",
            icon="work_off",
        )
        return
    for service, _ in declared:
        if service.engine is None:
            problem(
                f"The jobs of {service.name} are stored in SQL",
                "Start the console with --database-url, or EPHEMERA_DATABASE_URL, to see them.",
                icon="storage",
            )
    reachable = [(service, jobs) for service, jobs in declared if service.engine is not None]
    if reachable:
        _JobsPage(view, reachable)


class _JobsPage:
    """The page in one browser."""

    def __init__(self, view: View, declared: list[tuple[Service, Jobs]]) -> None:
        self._view = view
        self._declared = {f"{service.name}/{jobs.name}": (service, jobs) for service, jobs in declared}
        self._befores: list[datetime] = []
        self._last: datetime | None = None
        self._panel = drawer()
        with tiles():
            self._tiles = {state: tile(state.capitalize()) for state in TONES}
        with section("Jobs", "Newest first. Open one for its steps and its error.") as tools:
            with tools:
                self._draw_tools()
            with ui.element("form").classes("e-row").on("submit.prevent", self._find):
                self._states = ui.select(list(FILTERS), value="all", label="State", on_change=self._filter)
                self._kind = ui.select({_ANY: "all"}, value=_ANY, label="Kind", on_change=self._filter)
                self._id = ui.input("Job id").props("clearable").on("clear", self._find)
                for field in (self._states, self._kind, self._id):
                    field.props("dense outlined")
                ui.button("Find", icon="search").props('type="submit" unelevated no-caps')
            self._table = self._draw_table()
            with ui.element("div").classes("e-row"):
                self._newer = ui.button("Newest", icon="first_page", on_click=self._newest)
                self._older = ui.button("Older", icon="chevron_right", on_click=self._show_older)
                self._total = ui.label().classes("e-note")
                for button in (self._newer, self._older):
                    button.props("flat no-caps dense")
        self._sources = RowSources(self._show)
        self._timer = view.every(1, self._refresh)

    def _draw_tools(self) -> None:
        confirm_button(
            self._view,
            "Retry all dead",
            what="job.retry-dead",
            target="all dead jobs",
            question=f"Retry all dead jobs, at most {_MAX_RETRIED:,}?",
            work=self._retry_dead,
            done=lambda count: f"{count:,} {'job is' if count == 1 else 'jobs are'} queued again.",
            icon="replay",
            tone="warn",
            then=lambda: self._timer.now(),
        )

    def _draw_table(self) -> Any:
        return table(
            [
                Column("name", "Job"),
                Column("state", "State", kind="badge"),
                Column("progress", "Progress", kind="bar"),
                Column("step", "Last step"),
                Column("worker", "Worker"),
                Column("lease", "Lease", kind="time"),
                Column("attempts", "Attempts", kind="number"),
                Column("age", "Created", kind="time"),
            ],
            empty=Empty(
                "No jobs found", "Jobs appear here as soon as a service enqueues one.", icon="work_off"
            ),
            on_open=self._open,
            actions=[
                Action(
                    "retry",
                    "Retry job",
                    "replay",
                    what="job.retry",
                    question=lambda row: (
                        f"Retry {row['kind']} {row['short']}? It resumes after its last step."
                    ),
                    target=lambda row: f"{row['kind']} {row['job']}",
                    work=lambda row: self._change("retry", row),
                    done="The job is queued again.",
                ),
                Action(
                    "cancel",
                    "Cancel job",
                    "cancel",
                    what="job.cancel",
                    question=lambda row: (
                        f"Cancel {row['kind']} {row['short']}? Its worker stops within about a second."
                    ),
                    target=lambda row: f"{row['kind']} {row['job']}",
                    work=lambda row: self._change("cancel", row),
                    done="The job is cancelled.",
                    tone="bad",
                ),
            ],
            view=self._view,
            then=lambda: self._timer.now(),
        )

    async def _filter(self) -> None:
        self._befores.clear()
        await self._timer.now()

    async def _find(self) -> None:
        self._befores.clear()
        await self._timer.now()

    async def _newest(self) -> None:
        self._befores.clear()
        await self._timer.now()

    async def _show_older(self) -> None:
        if self._last is not None:
            self._befores.append(self._last)
        await self._timer.now()

    def _at(self, name: str) -> BoundJobs:
        """The jobs of a service, bound on first use, so that an error is shown and not fatal."""
        service, jobs = self._declared[name]
        return service.store[jobs]

    async def _change(self, what: str, row: dict[str, Any]) -> JobRow:
        service, _ = self._declared[row["of"]]
        bound = self._at(row["of"])
        with database_errors(service.name):
            return await (bound.retry if what == "retry" else bound.cancel)(row["job"])

    async def _retry_dead(self) -> int:
        count = 0
        for name, (service, _) in self._declared.items():
            bound = self._at(name)
            with database_errors(service.name):
                for row in await bound.find(states=("dead",), limit=_MAX_RETRIED):
                    await bound.retry(row.id)
                    count += 1
        return count

    async def _refresh(self) -> None:
        await self._sources.refresh({name: partial(self._read, name) for name in self._declared})

    async def _read(self, name: str) -> list[dict[str, Any]]:
        from ephemera.operations.inspect import count_jobs
        from ephemera.patterns.jobs import JobQueries

        service, jobs = self._declared[name]
        rows, wanted = JobQueries(jobs.tables, service.database), (self._id.value or "").strip()
        with database_errors(service.name):
            counts = await count_jobs(jobs, service.database)
            if wanted:
                found = [row for row in (await rows.get(wanted),) if row is not None]
            else:
                found = await rows.find(
                    states=FILTERS[self._states.value],
                    kind=self._kind.value or None,
                    limit=_PAGE,
                    before=self._befores[-1] if self._befores else None,
                )
        return [{"name": name, "counts": counts, "rows": found}]

    def _show(self, found: list[dict[str, Any]]) -> None:
        counts: list[JobCounts] = [each["counts"] for each in found]
        for state, tone in TONES.items():
            number = sum(each.states.get(state, 0) for each in counts)
            self._tiles[state].show(f"{number:,}", tone=tone if number else "plain")
        kinds = {_ANY: "all"} | {kind: kind for each in counts for kind in sorted(each.kinds)}
        if kinds != self._kind.options:
            self._kind.set_options(kinds, value=self._kind.value if self._kind.value in kinds else _ANY)
        self._table.show(
            [job_row(each["name"], row, each["counts"]) for each in found for row in each["rows"]]
        )
        self._last = max(
            (each["rows"][-1].created_at for each in found if len(each["rows"]) == _PAGE), default=None
        )
        self._newer.set_visibility(bool(self._befores))
        self._older.set_visibility(self._last is not None)
        total = sum(each.counted for each in counts)
        self._total.text = f"{total:,} jobs counted" if total else ""

    async def _open(self, row: dict[str, Any]) -> None:
        service, jobs = self._declared[row["of"]]
        await draw_details(self._view, self._panel, service, jobs, row["job"])


PAGE = ConsolePage("/jobs", "Jobs", "work", build)
