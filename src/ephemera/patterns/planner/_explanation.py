"""Why a user is due for a rebuild, or is not: every condition of `decide` with its figures, for operators.

It reads SQL and writes nothing. Activity is in SQL up to `PlannerTiming.touch_every` later than in Redis, so
a user who has just returned may be shown as inactive for so long.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import sqlalchemy as sa

from ephemera.patterns.planner._queries import Queries
from ephemera.patterns.planner._tables import milliseconds_of, server_time
from ephemera.patterns.planner._tick import Plan, Reason, UserFacts, trigger

UserSituation: TypeAlias = Literal[
    "running", "enqueued", "parked", "resting", "inactive", "not due", "cooldown", "due"
]
"""The first of these that holds: a worker runs; a task waits; too many runs failed; the last one failed
recently; not active; nothing triggers a rebuild; enqueued too recently; the next tick enqueues the user."""


class PlannerCondition(NamedTuple):
    """One condition, and the figures that decide it: milliseconds, except for `novelty` and `attempts`."""

    name: Literal["active", "novelty", "time", "cooldown", "attempts"]
    is_met: bool
    value: int | None
    """How long ago, how many; None for never."""
    limit: int


class UserExplanation(NamedTuple):
    """Why a user is due, or is not."""

    user_id: str
    plan: str
    situation: UserSituation
    reason: Reason | None
    """What triggers a rebuild, whether or not another condition prevents it."""
    cluster_version: int
    conditions: tuple[PlannerCondition, ...]
    """`active`, `novelty` or `time`, `cooldown` and `attempts` must be met."""
    until: int
    """When the situation ends by itself, in milliseconds since 1970; 0 if it does not."""
    last_error: str | None


async def explain(queries: Queries, plans: dict[str, Plan], user_id: str) -> UserExplanation | None:
    """Explain a user's situation; None if there is no such user."""
    known = (await queries.users([user_id])).get(user_id)
    if known is None:
        return None
    c = queries.tables.user_stats.c
    times = (server_time(), c.running_until, c.enqueued_until, c.retry_at)
    columns: list[Any] = [*map(milliseconds_of, times), c.attempts, c.last_error]
    async with queries.engine.connect() as sql:
        row = (await sql.execute(sa.select(*columns).where(c.user_id == user_id))).one_or_none()
    if row is None:
        return None
    plan, facts = plans.get(known.facts.plan), known.facts
    if plan is None:  # of another release
        return UserExplanation(
            user_id, facts.plan, "not due", None, known.cluster_version, (), 0, row.last_error
        )
    return _explained(user_id, known.cluster_version, plan, facts, row, queries.max_attempts)


def _explained(
    user_id: str, version: int, plan: Plan, facts: UserFacts, row: sa.Row[Any], max_attempts: int
) -> UserExplanation:
    now, running_until, enqueued_until, retry_at, attempts, last_error = tuple(row)
    free_at = facts.last_enqueued_at + plan.cooldown if facts.last_enqueued_at else 0

    def ago(at: int) -> int | None:
        return max(now - at, 0) if at else None

    active, clustered, enqueued = map(
        ago, (facts.last_active_at, facts.last_clustered_at, facts.last_enqueued_at)
    )
    is_active = now - facts.last_active_at <= plan.active_within
    is_old = now - facts.last_clustered_at >= plan.every
    conditions = (
        PlannerCondition("active", is_active, active, plan.active_within),
        PlannerCondition("novelty", facts.pending >= plan.novelty, facts.pending, plan.novelty),
        PlannerCondition("time", is_old, clustered, plan.every),
        PlannerCondition("cooldown", free_at <= now, enqueued, plan.cooldown),
        PlannerCondition("attempts", attempts < max_attempts and retry_at <= now, attempts, max_attempts),
    )
    reason = trigger(plan, facts, now)
    situations: tuple[tuple[UserSituation, bool, int], ...] = (
        ("running", running_until > now, running_until),
        ("enqueued", enqueued_until > now, enqueued_until),
        ("parked", attempts >= max_attempts, 0),
        ("resting", retry_at > now, retry_at),
        ("inactive", not is_active, 0),
        ("not due", reason is None, facts.last_clustered_at + plan.every),
        ("cooldown", free_at > now, free_at),
        ("due", True, 0),
    )
    situation, _, until = next(each for each in situations if each[1])
    return UserExplanation(user_id, facts.plan, situation, reason, version, conditions, until, last_error)
