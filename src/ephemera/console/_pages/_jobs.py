"""Jobs, queues and schedules: failed jobs can be retried, open ones cancelled, queues paused."""

from __future__ import annotations

from collections.abc import Sequence
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
    plot,
    problem,
    section,
    table,
    tile,
    tiles,
)
from ephemera.console._connections import Service
from ephemera.console._pages._job_details import draw_details
from ephemera.console._pages._job_rows import (
    FILTERS,
    TONES,
    job_row,
    queue_name,
    queue_row,
    schedule_row,
    short_names,
)
from ephemera.console._sources import RowSources, database_errors
from ephemera.console._view import ConsolePage, View
from ephemera.operations.inspect import declared_jobs

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.operations.inspect import ChangedJobs, JobCounts
    from ephemera.patterns.jobs import BoundJobs, JobRow, Jobs, QueueStats

_PAGE = 100  # jobs per database and page
_ANY = ""
_MAX_LINES = 6  # of the plot: as many as there are colours


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
        self._short = short_names(list(self._declared))
        self._befores: list[datetime] = []
        self._last: datetime | None = None
        self._panel = drawer()
        with tiles():
            self._tiles = {state: tile(state.capitalize()) for state in TONES}
        with section(
            "Jobs",
            "Newest first. Until: the end of the lease or the delay. Open one for its steps and error.",
        ) as tools:
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
        with section(
            "Queues",
            "The last hour. Wait: from being due to the start. Run: to the end. Median and 95th percentile.",
        ):
            self._queues = self._draw_queues()
            queues = [(name, queue) for name, (_, jobs) in self._declared.items() for queue in jobs.queues]
            self._plotted = queues[:_MAX_LINES]
            labels = [queue_name(self._short[name], queue) for name, queue in self._plotted]
            self._throughput = plot("Jobs that ended per minute", "number", *labels)
            self._waits = plot("Wait, 95th percentile of each minute", "seconds", *labels)
            self._runs = plot("Run, 95th percentile of each minute", "seconds", *labels)
        with section("Schedules", "Jobs that are enqueued on a schedule, next run first."):
            self._schedules = _draw_schedules()
        self._sources = RowSources(self._show)
        self._timer = view.every(1, self._refresh)

    def _draw_tools(self) -> None:
        from ephemera.operations.inspect import MAX_RETRIED_JOBS

        confirm_button(
            self._view,
            "Retry all dead",
            what="job.retry-dead",
            target="all dead jobs",
            question=f"Retry all dead jobs, at most {MAX_RETRIED_JOBS:,}?",
            work=self._retry_dead,
            done=_describe_retried,
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
                Column("lease", "Until", kind="time"),
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

    def _draw_queues(self) -> Any:
        return table(
            [
                Column("name", "Queue", kind="mono"),
                Column("state", "State", kind="badge"),
                Column("waiting", "Waiting", kind="number"),
                Column("delayed", "Delayed", kind="number"),
                Column("running", "Running", kind="number"),
                Column("ended", "Ended", kind="number"),
                Column("wait", "Wait"),
                Column("run", "Run"),
                Column("limits", "Limits"),
            ],
            empty=Empty("No queues", "Queues are declared with their jobs.", icon="work_off"),
            actions=[
                Action(
                    "pause",
                    "Pause",
                    "pause",
                    what="queue.pause",
                    question=lambda row: f"Pause {row['name']}? Running jobs continue; no other one starts.",
                    target=lambda row: row["id"],
                    work=lambda row: self._set_paused(row, paused=True),
                    done="The queue is paused.",
                    tone="warn",
                ),
                Action(
                    "resume",
                    "Resume",
                    "play_arrow",
                    what="queue.resume",
                    question=lambda row: f"Resume {row['name']}? Its waiting jobs start.",
                    target=lambda row: row["id"],
                    work=lambda row: self._set_paused(row, paused=False),
                    done="The queue is open again.",
                ),
            ],
            view=self._view,
            then=lambda: self._timer.now(),
        )

    async def _set_paused(self, row: dict[str, Any], *, paused: bool) -> None:
        service, _ = self._declared[row["of"]]
        bound = self._at(row["of"])
        with database_errors(service.name):
            await (bound.pause if paused else bound.resume)(row["queue"])

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

    async def _retry_dead(self) -> ChangedJobs:
        from ephemera.operations.inspect import ChangedJobs, change_bound_jobs

        all_changed = ChangedJobs([], [])
        for name, (service, _) in self._declared.items():
            bound = self._at(name)
            with database_errors(service.name):
                changed = await change_bound_jobs(bound, "retry")
            all_changed.done.extend(changed.done)
            all_changed.refused.extend(changed.refused)
        return all_changed

    async def _refresh(self) -> None:
        await self._sources.refresh({name: partial(self._read, name) for name in self._declared})

    async def _read(self, name: str) -> list[dict[str, Any]]:
        from ephemera.operations.inspect import count_jobs
        from ephemera.patterns.jobs import JobQueries, read_queue_stats

        service, jobs = self._declared[name]
        rows, wanted = JobQueries(jobs.tables, service.database), (self._id.value or "").strip()
        with database_errors(service.name):
            counts, schedules = await count_jobs(jobs, service.database), await rows.schedules()
            queues = await read_queue_stats(jobs.tables, service.database, jobs.queues)
            if wanted:
                found = [row for row in (await rows.get(wanted),) if row is not None]
            else:
                found = await rows.find(
                    states=FILTERS[self._states.value],
                    kind=self._kind.value or None,
                    limit=_PAGE,
                    before=self._befores[-1] if self._befores else None,
                )
        return [{"name": name, "counts": counts, "rows": found, "schedules": schedules, "queues": queues}]

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
        self._show_queues(found)
        self._schedules.show(
            [
                schedule_row(each["name"], schedule, each["counts"].now)
                for each in found
                for schedule in each["schedules"]
            ]
        )
        self._last = max(
            (each["rows"][-1].created_at for each in found if len(each["rows"]) == _PAGE), default=None
        )
        self._newer.set_visibility(bool(self._befores))
        self._older.set_visibility(self._last is not None)
        total = sum(each.counted for each in counts)
        self._total.text = f"{total:,} jobs counted" if total else ""

    def _show_queues(self, found: list[dict[str, Any]]) -> None:
        self._queues.show(
            [
                queue_row(each["name"], self._short[each["name"]], queue)
                for each in found
                for queue in each["queues"]
            ]
        )
        queues: dict[tuple[str, str], tuple[QueueStats, datetime]] = {
            (each["name"], queue.queue): (queue, each["counts"].now)
            for each in found
            for queue in each["queues"]
        }
        plotted = [queues[name] for name in self._plotted if name in queues]
        self._throughput.show_lines([_points(queue.per_minute, now) for queue, now in plotted])
        for shown, values in (
            (self._waits, [queue.wait_per_minute for queue, _ in plotted]),
            (self._runs, [queue.run_per_minute for queue, _ in plotted]),
        ):
            lines = zip(values, plotted, strict=True)
            shown.show_lines([_points([each and each[1] for each in line], now) for line, (_, now) in lines])

    async def _open(self, row: dict[str, Any]) -> None:
        service, jobs = self._declared[row["of"]]
        await draw_details(self._view, self._panel, service, jobs, row["job"])


def _describe_retried(changed: ChangedJobs) -> str:
    count = len(changed.done)
    text = f"{count:,} {'job is' if count == 1 else 'jobs are'} queued again."
    if changed.refused:
        text += f" {len(changed.refused):,} could not be retried, such as: {changed.refused[0]}."
    return text


def _points(values: Sequence[float | None], now: datetime) -> list[tuple[float, float | None]]:
    """The value of each minute, at its end."""
    last = len(values) - 1
    return [(now.timestamp() - 60 * (last - n), value) for n, value in enumerate(values)]


def _draw_schedules() -> Any:
    return table(
        [
            Column("name", "Schedule"),
            Column("kind", "Job"),
            Column("definition", "Runs", kind="mono"),
            Column("next", "Next run", kind="time"),
            Column("last", "Last run", kind="time"),
            Column("job", "Last job", kind="mono"),
        ],
        empty=Empty(
            "No schedules",
            "Declare JOBS.schedule(name, Cron(...), job); the workers store it when they start.",
            icon="event_repeat",
        ),
    )


PAGE = ConsolePage("/jobs", "Jobs", "work", build)
