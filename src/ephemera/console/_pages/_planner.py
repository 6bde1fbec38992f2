"""Planner: mode, last tick, enqueued users and dirty channels."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nicegui import ui

from ephemera.console._components import (
    Column,
    Empty,
    empty,
    facts,
    problem,
    section,
    table,
    tile,
    tiles,
)
from ephemera.console._connections import Service
from ephemera.console._formats import NO_VALUE, format_age, format_seconds, format_time, seconds_since
from ephemera.console._pages._planner_rows import (
    SITUATIONS,
    condition_row,
    not_due_row,
    plan_row,
    user_row,
)
from ephemera.console._sources import database_errors
from ephemera.console._view import ConsolePage, View
from ephemera.operations.formatting import format_count
from ephemera.operations.inspect import declared_planners

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.operations.inspect import DirtyChannels, PlannerState
    from ephemera.patterns.planner import Planner, UserExplanation

_MAX_TICK_AGE = 180.0  # seconds; ticks run at least every minute


def build(view: View) -> None:
    """Draw the page."""
    declared = [
        (service, each)
        for service in view.services
        for catalogue in service.catalogues
        for each in declared_planners(catalogue)
    ]
    if not declared:
        empty(
            "No planner is declared",
            "Declare one with Planner(catalogue, metadata, plans={...}): see docs/patterns/planner.md.",
            icon="event_busy",
        )
        return
    for service, planner in declared:
        _PlannerPart(view, service, planner)


class _PlannerPart:
    """The section of one planner."""

    def __init__(self, view: View, service: Service, planner: Planner) -> None:
        self._service, self._planner = service, planner
        self._user = ""  # who is explained
        if service.engine is None:
            problem(
                f"The planner of {service.name} stores its state in SQL",
                "Start the console with --database-url, or EPHEMERA_DATABASE_URL, to see them.",
                icon="storage",
            )
        else:
            self._draw_state()
            self._draw_explanation(view)
            self._draw_last_tick()
            view.every(2, self._refresh_state)
        with section(
            "Dirty channels", f"Channels of {service.name} with insights that no tick has processed."
        ):
            self._channels = table(
                [Column("channel", "Channel", kind="mono"), Column("age", "Marked", kind="time")],
                empty=Empty("No dirty channels", "The last tick processed everything.", icon="done_all"),
            )
        self._draw_plans()
        view.every(2, self._refresh_dirty)

    def _draw_explanation(self, view: View) -> None:
        with section(
            "Explain a user",
            "Whether the next tick enqueues a user, and why; looking it up changes nothing.",
        ) as self._head:
            with ui.element("form").classes("e-row").on("submit.prevent", self._choose):
                self._named = ui.input("User").props("dense outlined clearable maxlength=256")
                ui.button("Explain", icon="search").props('type="submit" unelevated no-caps')
            self._explained = facts()
            self._conditions = table(
                [
                    Column("condition", "Condition"),
                    Column("state", "State", kind="badge"),
                    Column("value", "Is", kind="time"),
                    Column("limit", "Limit", kind="time"),
                ],
                empty=Empty("No user explained", "Enter a user's id.", icon="person_search"),
            )
            self._conditions.show([])
        self._timer = view.every(2, self._refresh_explanation)

    async def _choose(self) -> None:
        self._user = (self._named.value or "").strip()
        await self._timer.now()

    async def _choose_row(self, row: dict[str, Any]) -> None:
        self._named.value = row["user"]
        await self._choose()
        self._head.run_method("scrollIntoView", {"block": "center"})

    async def _explain(self, *users: str) -> dict[str, UserExplanation]:
        from ephemera.patterns.planner import BoundPlanner

        planner = BoundPlanner(self._planner, self._service.store, self._service.database)
        with database_errors(self._service.name):
            return await planner.explain_all(users)

    async def _refresh_explanation(self) -> None:
        user = self._user
        if not user:
            return
        explained = (await self._explain(user)).get(user)
        if explained is None:
            self._explained.show([("User", user), ("Known", "no: there is no such user")])
            self._conditions.show([])
            return
        text = SITUATIONS[explained.situation]
        if explained.until:
            text += f", until {format_time(datetime.fromtimestamp(explained.until / 1000, UTC))}"
        self._explained.show(
            [
                ("User", user),
                ("Situation", text),
                ("Trigger", explained.reason or "none"),
                ("Plan", explained.plan),
                ("Version", f"{explained.cluster_version:,}"),
                *([("Last error", explained.last_error)] if explained.last_error else []),
            ]
        )
        self._conditions.show([condition_row(each) for each in explained.conditions])

    def _draw_state(self) -> None:
        with tiles():
            self._mode, self._tick, self._due = tile("Mode"), tile("Last tick"), tile("Candidates")
            self._enqueued, self._dirty = tile("Enqueued"), tile("Dirty channels")
        with section(
            "Enqueued users",
            "Users that a tick found due, and that no worker has finished. Open one to see every condition.",
        ):
            self._users = table(
                [
                    Column("user", "User", kind="mono"),
                    Column("reason", "Reason"),
                    Column("state", "State", kind="badge"),
                    Column("plan", "Plan"),
                    Column("since", "Enqueued", kind="time"),
                    Column("until", "Checked again in", kind="time"),
                ],
                empty=Empty("No users enqueued", "The workers have finished all due users.", icon="done_all"),
                on_open=self._choose_row,
            )
        with section(
            "Checked and not due",
            "The latest users whose novelty a tick counted and that were not due, at most 50. "
            "Inactive users are often skipped without a count.",
        ):
            self._not_due = table(
                [
                    Column("user", "User", kind="mono"),
                    Column("reason", "Reason"),
                    Column("plan", "Plan"),
                    Column("at", "Checked", kind="time"),
                ],
                empty=Empty(
                    "No users yet", "No tick has checked a user that was not due.", icon="person_off"
                ),
                on_open=self._choose_row,
                rows_per_page=10,
            )

    def _draw_last_tick(self) -> None:
        with section("Last tick", "Of the process that led it."):
            self._facts = facts()

    def _draw_plans(self) -> None:
        with section("Plans", "When an active user is due: after this much novelty, or this much time."):
            plans = table(
                [
                    Column("plan", "Plan"),
                    Column("novelty", "Due at", kind="number"),
                    Column("every", "Or after", kind="time"),
                    Column("active", "If active within", kind="time"),
                    Column("cooldown", "Cooldown", kind="time"),
                ],
                empty=Empty("No plans", "", icon="list"),
            )
        plans.show([plan_row(name, plan) for name, plan in self._planner.plans.items()])

    async def _refresh_state(self) -> None:
        from ephemera.operations.inspect import planner_state

        with database_errors(self._service.name):
            state = await planner_state(self._service.database, self._planner)
        explained = await self._explain(*(each.user for each in state.users)) if state.users else {}
        self._users.show([user_row(each, explained.get(each.user), state.now) for each in state.users])
        self._not_due.show([not_due_row(each, self._planner, state.now) for each in state.not_due])
        self._enqueued.show(f"{state.enqueued:,}", f"{state.due:,} due, {state.postponed:,} postponed")
        self._show_tick(state)

    def _show_tick(self, state: PlannerState) -> None:
        tick = state.last_tick
        if tick is None:
            self._mode.show(NO_VALUE, "no tick yet")
            self._facts.show([("Last tick", "none yet: is a planner running?")])
            return
        moment = datetime.fromtimestamp(tick.at / 1000, UTC)
        overdue = seconds_since(moment, state.now) > _MAX_TICK_AGE
        self._mode.show(
            "Redis" if tick.mode == "redis" else "SQL only",
            tick.problem or "reads Redis, backed by SQL",
            "good" if tick.mode == "redis" else "warn",
        )
        self._tick.show(
            format_age(moment, state.now),
            "is a planner running?" if overdue else f"took {tick.seconds * 1000:.0f} ms",
            "bad" if overdue else "plain",
        )
        self._due.show(f"{tick.candidates:,}", f"due, of {format_count(tick.examined, 'user')} checked")
        self._facts.show(
            [
                ("When", format_time(moment)),
                ("Took", f"{tick.seconds * 1000:.0f} ms"),
                ("Channels processed", f"{tick.dirty:,}"),
                ("Users checked", f"{tick.examined:,}"),
                ("Candidates", f"{tick.candidates:,}"),
                ("Enqueued", f"{tick.enqueued:,}"),
                ("Postponed", f"{tick.postponed:,}"),
                ("Truncated", "yes: the next tick continues" if tick.full else "no"),
                (
                    "Processed until",
                    NO_VALUE if state.examined_at is None else format_time(state.examined_at),
                ),
            ]
        )

    async def _refresh_dirty(self) -> None:
        from ephemera.operations.inspect import dirty_channels

        dirty: DirtyChannels = await dirty_channels(self._service.store, self._planner)
        self._channels.show(
            [
                {"id": channel, "channel": channel, "age": f"{format_seconds(age)} ago", "age_sort": age}
                for channel, age in dirty.oldest
            ]
        )
        if self._service.engine is not None:
            self._dirty.show(f"{dirty.count:,}", "waiting for the next tick")


PAGE = ConsolePage("/planner", "Planner", "event_repeat", build)
