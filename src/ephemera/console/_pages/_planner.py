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
from ephemera.console._sources import database_errors
from ephemera.console._view import ConsolePage, View
from ephemera.operations.formatting import format_count
from ephemera.operations.inspect import declared_planners

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.operations.inspect import DirtyChannels, EnqueuedUser, PlannerState
    from ephemera.patterns.planner import Planner, PlannerCondition

_MAX_TICK_AGE = 180.0  # seconds; ticks run at least every minute
_SITUATIONS = {
    "running": "a worker rebuilds the clusters",
    "enqueued": "enqueued; no worker has begun",
    "parked": "parked: too many runs failed in a row",
    "resting": "resting: the last run failed",
    "inactive": "not due: inactive for too long",
    "not due": "not due: too little novelty, and clustered recently",
    "cooldown": "due, but enqueued too recently",
    "due": "due: the next tick enqueues the user",
}
_CONDITIONS = {  # the title, and whether its figures are counts
    "active": ("Active within", False),
    "novelty": ("Novelty reached (or time)", True),
    "time": ("Clustered longer ago than (or novelty)", False),
    "cooldown": ("Enqueued longer ago than", False),
    "attempts": ("Failed attempts below", True),
}


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
        if service.engine is None:
            problem(
                f"The planner of {service.name} stores its state in SQL",
                "Start the console with --database-url, or EPHEMERA_DATABASE_URL, to see them.",
                icon="storage",
            )
        else:
            self._draw_state()
            view.every(2, self._refresh_state)
        with section(
            "Dirty channels", f"Channels of {service.name} with insights that no tick has processed."
        ):
            self._channels = table(
                [Column("channel", "Channel", kind="mono"), Column("age", "Marked", kind="time")],
                empty=Empty("No dirty channels", "The last tick processed everything.", icon="done_all"),
            )
        self._draw_plans()
        if service.engine is not None:
            self._draw_explanation(view)
        view.every(2, self._refresh_dirty)

    def _draw_explanation(self, view: View) -> None:
        with section(
            "Explain a user",
            "Whether the next tick enqueues a user, and why; looking it up changes nothing.",
        ):
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
        self._user = ""
        self._timer = view.every(2, self._refresh_explanation)

    async def _choose(self) -> None:
        self._user = (self._named.value or "").strip()
        await self._timer.now()

    async def _refresh_explanation(self) -> None:
        from ephemera.patterns.planner import BoundPlanner

        user = self._user
        if not user:
            return
        planner = BoundPlanner(self._planner, self._service.store, self._service.database)
        with database_errors(self._service.name):
            explained = await planner.explain(user)
        if explained is None:
            self._explained.show([("User", user), ("Known", "no: there is no such user")])
            self._conditions.show([])
            return
        text = _SITUATIONS[explained.situation]
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
        self._conditions.show([_condition_row(each) for each in explained.conditions])

    def _draw_state(self) -> None:
        with tiles():
            self._mode, self._tick, self._due = tile("Mode"), tile("Last tick"), tile("Candidates")
            self._enqueued, self._dirty = tile("Enqueued"), tile("Dirty channels")
        with section("Last tick", "Of the process that led it."):
            self._facts = facts()
        with section("Enqueued users", "Users that a tick found due, and that no worker has finished."):
            self._users = table(
                [
                    Column("user", "User", kind="mono"),
                    Column("state", "State", kind="badge"),
                    Column("plan", "Plan"),
                    Column("since", "Enqueued", kind="time"),
                    Column("until", "Checked again in", kind="time"),
                ],
                empty=Empty("No users enqueued", "The workers have finished all due users.", icon="done_all"),
            )

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
        plans.show([_plan_row(name, plan) for name, plan in self._planner.plans.items()])

    async def _refresh_state(self) -> None:
        from ephemera.operations.inspect import planner_state

        with database_errors(self._service.name):
            state = await planner_state(self._service.database, self._planner)
        self._users.show([_user_row(each, state.now) for each in state.users])
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


def _user_row(seen: EnqueuedUser, now: datetime) -> dict[str, Any]:
    return {
        "id": seen.user,
        "user": seen.user,
        "state": "running" if seen.running else "queued",
        "state_tone": "info" if seen.running else "plain",
        "plan": seen.plan,
        "since": "" if seen.since is None else format_age(seen.since, now),
        "since_sort": 0 if seen.since is None else seconds_since(seen.since, now),
        "until": format_seconds((seen.until - now).total_seconds()),
        "until_sort": (seen.until - now).total_seconds(),
    }


def _condition_row(condition: PlannerCondition) -> dict[str, Any]:
    title, is_count = _CONDITIONS[condition.name]

    def shown(value: int | None) -> str:
        return "never" if value is None else f"{value:,}" if is_count else format_seconds(value / 1000)

    return {
        "id": condition.name,
        "condition": title,
        "state": "met" if condition.is_met else "not met",
        "state_tone": "good" if condition.is_met else "plain",
        "value": shown(condition.value) + ("" if is_count or condition.value is None else " ago"),
        "value_sort": condition.value or 0,
        "limit": shown(condition.limit),
        "limit_sort": condition.limit,
    }


def _plan_row(name: str, plan: Any) -> dict[str, Any]:
    return {
        "id": name,
        "plan": name,
        "novelty": f"{plan.novelty:,} new",
        "novelty_sort": plan.novelty,
        "every": format_seconds(plan.every / 1000),
        "every_sort": plan.every,
        "active": format_seconds(plan.active_within / 1000),
        "active_sort": plan.active_within,
        "cooldown": format_seconds(plan.cooldown / 1000),
        "cooldown_sort": plan.cooldown,
    }


PAGE = ConsolePage("/planner", "Planner", "event_repeat", build)
