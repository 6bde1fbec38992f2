"""Planner: where it reads from, what its last tick did, who is handed over, which channels are dirty."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

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
from ephemera.console._connections import Place
from ephemera.console._moments import NOTHING, ago, clock, lasting, since
from ephemera.console._page import Page
from ephemera.console._sources import database_of
from ephemera.console._view import View
from ephemera.operations.formatting import format_count
from ephemera.operations.inspect import declared_planners

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.operations.inspect import DirtyChannels, EnqueuedUser, PlannerState
    from ephemera.patterns.planner import Planner

_SILENT = 180.0  # seconds without a tick, and something is wrong: they come every minute at least


def build(view: View) -> None:
    """Draw the page."""
    declared = [
        (place, each)
        for place in view.places
        for catalogue in place.catalogues
        for each in declared_planners(catalogue)
    ]
    if not declared:
        empty(
            "No planner is declared",
            "Planner(catalogue, metadata, plans={...}) declares one: see docs/patterns/planner.md.",
            icon="event_busy",
        )
        return
    for place, planner in declared:
        _PlannerPart(view, place, planner)


class _PlannerPart:
    """What is shown of one planner."""

    def __init__(self, view: View, place: Place, planner: Planner) -> None:
        self._place, self._planner = place, planner
        if place.engine is None:
            problem(
                f"The planner of {place.name} keeps its ticks in SQL",
                "Start the console with --database-url, or EPHEMERA_DATABASE_URL, to see them.",
                icon="storage",
            )
        else:
            self._draw_truth()
            view.every(2, self._refresh_truth)
        with section("Dirty channels", f"Channels of {place.name} with insights that no tick has looked at."):
            self._channels = table(
                [Column("channel", "Channel", kind="mono"), Column("age", "Marked", kind="time")],
                empty=Empty(
                    "No channel is dirty", "The last tick has looked at everything.", icon="done_all"
                ),
            )
        self._draw_plans()
        view.every(2, self._refresh_dirty)

    def _draw_truth(self) -> None:
        with tiles():
            self._mode, self._tick, self._due = tile("Mode"), tile("Last tick"), tile("Candidates")
            self._handed, self._dirty = tile("Handed over"), tile("Dirty channels")
        with section("Last tick", "Of whichever process led it."):
            self._facts = facts()
        with section("Handed over", "Users whom a tick found due, and whom no worker is done with."):
            self._users = table(
                [
                    Column("user", "User", kind="mono"),
                    Column("state", "State", kind="badge"),
                    Column("plan", "Plan"),
                    Column("since", "Handed over", kind="time"),
                    Column("until", "Looked at again in", kind="time"),
                ],
                empty=Empty(
                    "Nobody is handed over", "The workers are done with all who were due.", icon="done_all"
                ),
            )

    def _draw_plans(self) -> None:
        with section(
            "Plans", "When a user is due: so much is new, or so much time has passed, while active."
        ):
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

    async def _refresh_truth(self) -> None:
        from ephemera.operations.inspect import planner_state

        assert self._place.engine is not None  # noqa: S101 - it is not drawn otherwise
        with database_of(self._place.name):
            truth = await planner_state(self._place.engine, self._planner)
        self._users.show([_user_row(each, truth.now) for each in truth.users])
        self._handed.show(f"{truth.enqueued:,}", f"{truth.due:,} are due again, {truth.postponed:,} later")
        self._show_tick(truth)

    def _show_tick(self, truth: PlannerState) -> None:
        tick = truth.last_tick
        if tick is None:
            self._mode.show(NOTHING, "no tick yet")
            self._facts.show([("Last tick", "none yet: is a planner running?")])
            return
        moment = datetime.fromtimestamp(tick.at / 1000, UTC)
        silent = since(moment, truth.now) > _SILENT
        self._mode.show(
            "Redis" if tick.mode == "redis" else "SQL alone",
            tick.problem or "copies in Redis, SQL behind them",
            "good" if tick.mode == "redis" else "warn",
        )
        self._tick.show(
            ago(moment, truth.now),
            "is a planner running?" if silent else f"took {tick.seconds * 1000:.0f} ms",
            "bad" if silent else "plain",
        )
        self._due.show(f"{tick.candidates:,}", f"due, of {format_count(tick.examined, 'user')} examined")
        self._facts.show(
            [
                ("When", clock(moment)),
                ("Took", f"{tick.seconds * 1000:.0f} ms"),
                ("Channels looked at", f"{tick.dirty:,}"),
                ("Users examined", f"{tick.examined:,}"),
                ("Candidates", f"{tick.candidates:,}"),
                ("Handed over", f"{tick.enqueued:,}"),
                ("Postponed", f"{tick.postponed:,}"),
                ("More than a tick takes", "yes: the next one goes on" if tick.full else "no"),
                (
                    "Everything looked at until",
                    NOTHING if truth.examined_at is None else clock(truth.examined_at),
                ),
            ]
        )

    async def _refresh_dirty(self) -> None:
        from ephemera.operations.inspect import dirty_channels

        dirty: DirtyChannels = await dirty_channels(self._place.store, self._planner)
        self._channels.show(
            [
                {"id": channel, "channel": channel, "age": f"{lasting(age)} ago", "age_sort": age}
                for channel, age in dirty.oldest
            ]
        )
        if self._place.engine is not None:
            self._dirty.show(f"{dirty.count:,}", "wait for the next tick")


def _user_row(seen: EnqueuedUser, now: datetime) -> dict[str, Any]:
    return {
        "id": seen.user,
        "user": seen.user,
        "state": "running" if seen.running else "queued",
        "state_tone": "info" if seen.running else "plain",
        "plan": seen.plan,
        "since": "" if seen.since is None else ago(seen.since, now),
        "since_sort": 0 if seen.since is None else since(seen.since, now),
        "until": lasting((seen.until - now).total_seconds()),
        "until_sort": (seen.until - now).total_seconds(),
    }


def _plan_row(name: str, plan: Any) -> dict[str, Any]:
    return {
        "id": name,
        "plan": name,
        "novelty": f"{plan.novelty:,} new",
        "novelty_sort": plan.novelty,
        "every": lasting(plan.every / 1000),
        "every_sort": plan.every,
        "active": lasting(plan.active_within / 1000),
        "active_sort": plan.active_within,
        "cooldown": lasting(plan.cooldown / 1000),
        "cooldown_sort": plan.cooldown,
    }


PAGE = Page("/planner", "Planner", "event_repeat", build)
