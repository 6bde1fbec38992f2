"""What a check came to: everything that a response needs, worked out when it is asked for.

Times are seconds from now on, so a decision that is kept for a while, as a remembered denial is, stays right.
"""

from __future__ import annotations

from time import monotonic
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from ephemera.patterns.rate_limits._claims import Claim

Source: TypeAlias = Literal["server", "memory", "outage"]
"""Who decided: the server; this process, by a denial it remembers; a policy, the server being away."""

_SIX_BYTES = (1 << 48) - 1
_number = int.from_bytes

Reply: TypeAlias = bytes | list[int]
"""What `lua/rate_limits_take.lua` returns: bytes when units were taken."""


class Outcome(NamedTuple):
    """How one rule stands after a decision."""

    claim: Claim
    rule: str
    limit: int
    remaining: int
    reset: float  # seconds until all of it is free again
    retry_after: float | None  # seconds until this claim would have room: 0 when it has, None for never
    violated: bool


class Decision(msgspec.Struct, eq=False, gc=False):
    """Whether a request may go on, and how its limits stand."""

    allowed: bool
    claims: tuple[Claim, ...]
    """Those whose state is known: all, but for a remembered denial and an outage."""
    keys: tuple[str, ...]
    cost: int
    reply: Reply
    at: float
    """By `time.monotonic`: when it was asked for; of a denial when it came, so that nobody comes early."""
    taken: bool = False
    """Whether quota was taken and may be given back, which is done once."""
    source: Source = "server"
    moments: tuple[int, ...] = ()
    """Of each claim the time of its own node, where a check went to several."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """How each rule stands."""
        since = monotonic() - self.at
        made = []
        for claim, (remaining, wait, reset) in zip(self.claims, self.findings(), strict=True):
            seconds = wait / 1000 - since
            retry_after = None if wait < 0 else (seconds if wait and seconds > 0 else 0.0)
            left = max(0.0, reset / 1000 - since)
            made.append(Outcome(claim, claim.rule.name, claim.limit, remaining, left, retry_after, wait != 0))
        return tuple(made)

    @property
    def violated(self) -> tuple[Outcome, ...]:
        """The rules that had no room."""
        return tuple(outcome for outcome in self.outcomes if outcome.violated)

    @property
    def binding(self) -> Outcome | None:
        """The rule that decides: the violated one to wait longest for, or that with the least room left."""
        if self.allowed:
            return min(self.outcomes, key=_room, default=None)
        return max(self.violated, key=_wait, default=None)

    @property
    def remaining(self) -> int | None:
        """Units left of the binding rule; None when the server could not be asked."""
        return None if (binding := self.binding) is None else binding.remaining

    @property
    def reset(self) -> float | None:
        """Seconds until the binding rule is unused; None when the server could not be asked."""
        return None if (binding := self.binding) is None else binding.reset

    @property
    def retry_after(self) -> float | None:
        """Seconds until the same check may pass: 0 when it did, None when it never will at this limit."""
        return 0.0 if (binding := self.binding) is None or self.allowed else binding.retry_after

    @property
    def degraded(self) -> bool:
        """Whether the server was away, so that the rules' policy decided."""
        return self.source == "outage"

    @property
    def now(self) -> int:
        """The server's time at the decision, in milliseconds since 1970; 0 when it was not asked."""
        return _number(self.reply[:6], "big") if isinstance(self.reply, bytes) else self.reply[1]

    def stand(self) -> list[tuple[int, int, int]]:
        """Of each claim with nothing taken: what is used, ms until it has room, ms until it is unused."""
        reply = self.reply
        assert isinstance(reply, list)  # noqa: S101 - units were not taken
        return list(zip(reply[2::3], reply[3::3], reply[4::3], strict=True))

    def left_of_one(self) -> tuple[int, int]:
        """Of a single claim with units taken: those that remain, and ms to the reset. Each response asks."""
        claim = self.claims[0]
        reply = _number(self.reply, "big")  # two numbers: the time, and what was used before
        used, now = reply & _SIX_BYTES, reply >> 48
        return claim.rule.algorithm.after(claim.settings, used, claim.cost or self.cost, now)

    def findings(self) -> list[tuple[int, int, int]]:
        """Of each claim, as it was at the decision: remaining units, ms to wait, ms to the reset."""
        found = []
        if isinstance(self.reply, bytes):
            if len(self.claims) == 1:
                remaining, reset = self.left_of_one()
                return [(remaining, 0, reset)]
            now, *used = numbers(self.reply)
            for claim, before in zip(self.claims, used, strict=True):
                cost = claim.cost or self.cost
                remaining, reset = claim.rule.algorithm.after(claim.settings, before, cost, now)
                found.append((remaining, 0, reset))
        else:
            for claim, (before, wait, reset) in zip(self.claims, self.stand(), strict=True):
                found.append((claim.rule.algorithm.remaining(claim.settings, before), wait, reset))
        return found


def numbers(reply: bytes) -> list[int]:
    """The six-byte numbers of a reply."""
    return [_number(reply[place : place + 6], "big") for place in range(0, len(reply), 6)]


def _wait(outcome: Outcome) -> float:
    return float("inf") if outcome.retry_after is None else outcome.retry_after


def _room(outcome: Outcome) -> float:
    return outcome.remaining / outcome.limit if outcome.limit else 0.0
