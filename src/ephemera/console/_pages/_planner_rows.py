"""The rows of the planner's page, and its words for why a user is due or is not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ephemera.console._formats import format_age, format_seconds, seconds_since

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.operations.inspect import EnqueuedUser
    from ephemera.patterns.planner import NotDueUser, Plan, Planner, PlannerCondition, UserExplanation

SITUATIONS = {
    "running": "a worker rebuilds the clusters",
    "enqueued": "enqueued; no worker has begun",
    "parked": "parked: too many runs failed in a row",
    "resting": "resting: the last run failed",
    "inactive": "not due: inactive for too long",
    "not due": "not due: too little novelty, and clustered recently",
    "cooldown": "due, but enqueued too recently",
    "due": "due: the next tick enqueues the user",
}
_NOT_DUE = {
    "inactive": "inactive for too long",
    "not due": "too little novelty",
    "cooldown": "enqueued too recently",
}
_CONDITIONS = {  # the title, and whether its figures are counts
    "active": ("Active within", False),
    "novelty": ("Novelty reached (or time)", True),
    "time": ("Clustered longer ago than (or novelty)", False),
    "cooldown": ("Enqueued longer ago than", False),
    "attempts": ("Failed attempts below", True),
}


def user_row(seen: EnqueuedUser, explained: UserExplanation | None, now: datetime) -> dict[str, Any]:
    """An enqueued user, with what triggered it."""
    return {
        "id": seen.user,
        "user": seen.user,
        "reason": "" if explained is None else _reason(explained),
        "state": "running" if seen.running else "queued",
        "state_tone": "info" if seen.running else "plain",
        "plan": seen.plan,
        "since": "" if seen.since is None else format_age(seen.since, now),
        "since_sort": 0 if seen.since is None else seconds_since(seen.since, now),
        "until": format_seconds((seen.until - now).total_seconds()),
        "until_sort": (seen.until - now).total_seconds(),
    }


def not_due_row(seen: NotDueUser, planner: Planner, now: datetime) -> dict[str, Any]:
    """A user that a tick found not due, with the reason."""
    plan, at = planner.plans.get(seen.plan), datetime.fromtimestamp(seen.at / 1000, UTC)
    novelty = f"{seen.pending:,} new" + (f", due at {plan.novelty:,}" if plan else "")
    return {
        "id": seen.user_id,
        "user": seen.user_id,
        "reason": f"{_NOT_DUE[seen.why]}: {novelty}",
        "plan": seen.plan,
        "at": format_age(at, now),
        "at_sort": seconds_since(at, now),
    }


def _reason(explained: UserExplanation) -> str:
    """What triggers the rebuild, with its figure and its limit."""
    for condition in explained.conditions:
        if condition.name == explained.reason == "novelty":
            return f"novelty: {condition.value or 0:,} new, due at {condition.limit:,}"
        if condition.name == explained.reason == "time":
            clustered = "never clustered" if condition.value is None else f"clustered {_shown(condition)}"
            return f"time: {clustered}, due after {format_seconds(condition.limit / 1000)}"
    return "none any more"  # another run has just clustered the user


def _shown(condition: PlannerCondition) -> str:
    """How long ago."""
    return "never" if condition.value is None else f"{format_seconds(condition.value / 1000)} ago"


def condition_row(condition: PlannerCondition) -> dict[str, Any]:
    """A condition of a user, with its figures."""
    title, is_count = _CONDITIONS[condition.name]
    return {
        "id": condition.name,
        "condition": title,
        "state": "met" if condition.is_met else "not met",
        "state_tone": "good" if condition.is_met else "plain",
        "value": f"{condition.value or 0:,}" if is_count else _shown(condition),
        "value_sort": condition.value or 0,
        "limit": f"{condition.limit:,}" if is_count else format_seconds(condition.limit / 1000),
        "limit_sort": condition.limit,
    }


def plan_row(name: str, plan: Plan) -> dict[str, Any]:
    """The thresholds of a plan."""
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
