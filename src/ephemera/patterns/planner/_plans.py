"""When a user is due: one pure function, which both sources, the worker and the simulation go through.

    due = active and (pending >= plan.novelty or clustered longer ago than plan.every)

A user who is due but was handed over less than `plan.cooldown` ago is told when to be looked at again, so
that nobody has to wait for another insight. All moments are milliseconds since 1970; 0 means never.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import check_durations

Reason: TypeAlias = Literal["novelty", "time"]


class Plan:
    """What a plan grants: how much novelty or how much time makes a rebuild, and for whom."""

    __slots__ = ("active_within", "cooldown", "every", "novelty")

    def __init__(
        self, *, novelty: int, every: timedelta, active_within: timedelta, cooldown: timedelta
    ) -> None:
        """`novelty` is in insights; `active_within` is how long ago the user may have been seen last."""
        check_durations("Plan", every=every, active_within=active_within, cooldown=cooldown)
        self.novelty = novelty
        self.every = milliseconds(every)
        self.active_within = milliseconds(active_within)
        self.cooldown = milliseconds(cooldown)
        if novelty < 1 or min(self.every, self.active_within) < 1 or self.cooldown < 0:
            raise InvalidDeclaration(
                repr(self),
                "a plan without novelty, time or activity",
                "give novelty=1 or more, and positive durations (the cooldown may be zero)",
            )

    def __repr__(self) -> str:
        return (
            f"Plan(novelty={self.novelty}, every={timedelta(milliseconds=self.every)}, "
            f"active_within={timedelta(milliseconds=self.active_within)}, "
            f"cooldown={timedelta(milliseconds=self.cooldown)})"
        )


class Facts(NamedTuple):
    """What is known of a user at one moment."""

    plan: str
    pending: int  # insights of the user's channels that were never clustered for this user
    last_clustered_at: int = 0
    last_active_at: int = 0
    last_enqueued_at: int = 0


class Task(NamedTuple):
    """A user to be clustered: what is handed to the enqueue port."""

    user_id: str
    reason: Reason
    pending: int


class Verdict(NamedTuple):
    """Due for a reason; or, where there is none, to be looked at again at a moment, or (0) not at all."""

    reason: Reason | None
    look_at: int = 0


QUIET = Verdict(None)


def trigger(plan: Plan, facts: Facts, now: int) -> Reason | None:
    """Why the user's clusters are to be rebuilt, whoever asks; None while they are good enough."""
    if facts.pending >= plan.novelty:
        return "novelty"
    return "time" if now - facts.last_clustered_at >= plan.every else None


def decide(plan: Plan, facts: Facts, now: int) -> Verdict:
    """Whether to hand a user over now."""
    if now - facts.last_active_at > plan.active_within:
        return QUIET
    reason = trigger(plan, facts, now)
    if reason is None:
        return QUIET
    free_at = facts.last_enqueued_at + plan.cooldown if facts.last_enqueued_at else 0
    return Verdict(None, free_at) if free_at > now else Verdict(reason)


def milliseconds(duration: timedelta) -> int:
    """A duration as whole milliseconds."""
    return round(duration / timedelta(milliseconds=1))
