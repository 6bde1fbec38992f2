"""When a user is due: one pure function that both sources, the worker and the simulation share.

    due = active and (pending >= plan.novelty or clustered longer ago than plan.every)

A user who is due but was enqueued less than `plan.cooldown` ago gets a time for a recheck, so that no user
has to wait for another insight. All times are milliseconds since 1970; 0 means never.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import check_durations

Reason: TypeAlias = Literal["novelty", "time"]


class Plan:
    """The thresholds of a plan: how much novelty or how much time triggers a rebuild, and for whom.

    - `novelty`: the number of new insights that triggers a rebuild.
    - `every`: the time after which any new insight triggers one.
    - `active_within`: how recently a user must have been active.
    - `cooldown`: the least time between two enqueuings of a user.
    """

    __slots__ = ("active_within", "cooldown", "every", "novelty")

    def __init__(
        self, *, novelty: int, every: timedelta, active_within: timedelta, cooldown: timedelta
    ) -> None:
        check_durations("Plan", every=every, active_within=active_within, cooldown=cooldown)
        self.novelty = novelty
        self.every = milliseconds(every)
        self.active_within = milliseconds(active_within)
        self.cooldown = milliseconds(cooldown)
        if novelty < 1 or min(self.every, self.active_within) < 1 or self.cooldown < 0:
            raise InvalidDeclaration(
                repr(self),
                "a threshold is too small",
                "give novelty=1 or more, and positive durations (the cooldown may be zero)",
            )

    def __repr__(self) -> str:
        return (
            f"Plan(novelty={self.novelty}, every={timedelta(milliseconds=self.every)}, "
            f"active_within={timedelta(milliseconds=self.active_within)}, "
            f"cooldown={timedelta(milliseconds=self.cooldown)})"
        )


class UserFacts(NamedTuple):
    """What is known of a user at one time."""

    plan: str
    pending: int  # insights of the user's channels that were never clustered for this user
    last_clustered_at: int = 0
    last_active_at: int = 0
    last_enqueued_at: int = 0


class Task(NamedTuple):
    """A user whose clusters are due: what `enqueue` gets."""

    user_id: str
    reason: Reason
    pending: int


class Verdict(NamedTuple):
    """Due for a reason; or, without one, to be rechecked at a time, or (0) not at all."""

    reason: Reason | None
    recheck_at: int = 0


NOT_DUE = Verdict(None)


def trigger(plan: Plan, facts: UserFacts, now: int) -> Reason | None:
    """Return why the user's clusters are due for a rebuild; None while they are recent enough."""
    if facts.pending >= plan.novelty:
        return "novelty"
    return "time" if now - facts.last_clustered_at >= plan.every else None


def decide(plan: Plan, facts: UserFacts, now: int) -> Verdict:
    """Decide whether to enqueue a user now."""
    if now - facts.last_active_at > plan.active_within:
        return NOT_DUE
    reason = trigger(plan, facts, now)
    if reason is None:
        return NOT_DUE
    free_at = facts.last_enqueued_at + plan.cooldown if facts.last_enqueued_at else 0
    return Verdict(None, free_at) if free_at > now else Verdict(reason)


def milliseconds(duration: timedelta) -> int:
    """Return a duration as whole milliseconds."""
    return round(duration / timedelta(milliseconds=1))
