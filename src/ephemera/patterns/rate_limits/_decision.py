"""The decision of a check, whose details are computed when asked for; its headers; decisions in an outage.

Times are seconds from now, so a decision that is kept for a while, such as a cached denial, stays correct.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import accumulate
from time import monotonic
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from ephemera.patterns.rate_limits._claims import Claim
from ephemera.patterns.rate_limits._rules import LocalShare, WhenDown

DecisionSource: TypeAlias = Literal["server", "memory", "outage"]
"""What decided: the server; a denial cached in this process; a policy, while the server was down."""

Reply: TypeAlias = bytes | list[int]
"""The reply of `lua/take.lua`: bytes when units were taken."""

ClaimState: TypeAlias = tuple[int, int, int]
"""Of one claim: units (remaining, or used where said), ms until there is room, ms until it is unused."""

_SIX_BYTES = (1 << 48) - 1
_SUBJECTS_CACHED = 10_000  # then the oldest is dropped
_CLOSED_RETRY = 1000  # ms that a closed rule asks callers to wait
_number = int.from_bytes


class Outcome(NamedTuple):
    """The state of one rule after a decision."""

    claim: Claim
    rule: str
    limit: int
    remaining: int
    reset: float  # seconds until all of it is free again
    retry_after: float | None  # seconds until this claim would have room: 0 when it has, None for never
    violated: bool


class Decision(msgspec.Struct, eq=False, gc=False):
    """Whether a request may proceed, and the state of its limits."""

    allowed: bool
    claims: tuple[Claim, ...]
    """Those whose state is known: all, except with a cached denial or in an outage."""
    _keys: tuple[str, ...]
    cost: int
    _reply: Reply
    _decided_at: float
    """By `time.monotonic`: when it was sent; of a denial when it arrived, so that retries are not early."""
    taken: bool = False
    """Whether units were taken and may be given back, which is done once."""
    source: DecisionSource = "server"
    _node_times: tuple[int, ...] = ()
    """The time of each claim's node, where a check went to several."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The state of each rule."""
        since = monotonic() - self._decided_at
        outcomes = []
        for claim, (remaining, wait, reset) in zip(self.claims, self._states(), strict=True):
            seconds = wait / 1000 - since
            retry_after = None if wait < 0 else (seconds if wait and seconds > 0 else 0.0)
            left = max(0.0, reset / 1000 - since)
            outcomes.append(
                Outcome(claim, claim.rule.name, claim.limit, remaining, left, retry_after, wait != 0)
            )
        return tuple(outcomes)

    @property
    def violated(self) -> tuple[Outcome, ...]:
        """The rules that had no room."""
        return tuple(outcome for outcome in self.outcomes if outcome.violated)

    @property
    def binding(self) -> Outcome | None:
        """The rule that decides: the violated one with the longest wait, or the one with the least room."""
        if self.allowed:
            return min(self.outcomes, key=_room, default=None)
        return max(self.violated, key=_wait, default=None)

    @property
    def remaining(self) -> int | None:
        """Units left of the binding rule; None when the server was down."""
        return None if (binding := self.binding) is None else binding.remaining

    @property
    def reset(self) -> float | None:
        """Seconds until the binding rule is unused; None when the server was down."""
        return None if (binding := self.binding) is None else binding.reset

    @property
    def retry_after(self) -> float | None:
        """Seconds until the same check may pass: 0 when it did, None when it never will at this limit."""
        return 0.0 if (binding := self.binding) is None or self.allowed else binding.retry_after

    @property
    def degraded(self) -> bool:
        """Whether the server was down, so that the rules' policy decided."""
        return self.source == "outage"

    @property
    def now(self) -> int:
        """The server's time at the decision, in milliseconds since 1970; 0 when it was not asked."""
        return _number(self._reply[:6], "big") if isinstance(self._reply, bytes) else self._reply[1]

    def _states(self) -> list[ClaimState]:
        """Of each claim at the decision: remaining units, ms to wait, ms to the reset."""
        if not isinstance(self._reply, bytes):
            return [
                (claim.rule.algorithm.remaining(claim._settings, used), wait, reset)
                for claim, (used, wait, reset) in zip(self.claims, usage(self._reply), strict=True)
            ]
        if len(self.claims) == 1:
            remaining, reset = self._single_state()
            return [(remaining, 0, reset)]
        found = []
        now, *used_before = numbers(self._reply)
        for claim, used in zip(self.claims, used_before, strict=True):
            cost = claim.cost or self.cost
            remaining, reset = claim.rule.algorithm.after(claim._settings, used, cost, now)
            found.append((remaining, 0, reset))
        return found

    def _single_state(self) -> tuple[int, int]:
        """Of a single claim with units taken: remaining units and ms to the reset; the web's hot path."""
        claim = self.claims[0]
        reply = _number(cast("bytes", self._reply), "big")  # the time, and the units used before
        used, now = reply & _SIX_BYTES, reply >> 48
        return claim.rule.algorithm.after(claim._settings, used, claim.cost or self.cost, now)


def limit_headers(decision: Decision) -> list[tuple[bytes, bytes]]:
    """The headers with the state of a request's limits; none when the server was down."""
    claims = decision.claims
    if decision.taken and len(claims) == 1:  # the usual case
        remaining, reset = decision._single_state()
        name, policy = claims[0]._header_memo or _render_policy(claims[0])
        return [policy, (b"ratelimit", b"%b;r=%d;t=%d" % (name, remaining, -(-reset // 1000)))]
    if not claims:
        return []
    # An admission is new; a denial may have been cached for a while.
    since = 0 if decision.taken else int((monotonic() - decision._decided_at) * 1000)
    policies, states = [], []
    for claim, (remaining, wait, reset) in zip(claims, decision._states(), strict=True):
        seconds = -((since - (wait if wait > 0 else reset)) // 1000)
        name, policy = claim._header_memo or _render_policy(claim)
        policies.append(policy[1])
        states.append(b"%b;r=%d;t=%d" % (name, remaining, max(0, seconds)))
    return [(b"ratelimit-policy", b", ".join(policies)), (b"ratelimit", b", ".join(states))]


def _render_policy(claim: Claim) -> tuple[bytes, tuple[bytes, bytes]]:
    """Render the name of a claim's rule and its RateLimit-Policy, once."""
    rule = claim.rule
    name = f'"{rule.name}"'.encode()
    window = -(-rule.algorithm.per // 1000)  # whole seconds: the draft has no fractions
    policy = name + f";q={claim.limit};w={window}".encode()
    claim._header_memo = rendered = name, (b"ratelimit-policy", policy)
    return rendered


class UnitLog:
    """The units of one subject that this process admitted: when they are free again, and their sum."""

    __slots__ = ("entries", "used")

    def __init__(self) -> None:
        self.entries: deque[tuple[float, int]] = deque()
        """When units are free again by `time.monotonic`, and how many; the earliest first."""
        self.used = 0

    def add(self, free_at: float, units: int) -> None:
        """Log units."""
        self.entries.append((free_at, units))
        self.used += units

    def drop_free(self, now: float) -> None:
        """Remove units that are free again."""
        entries = self.entries
        while entries and entries[0][0] <= now:
            self.used -= entries.popleft()[1]


class LocalShares:
    """The units that this process admitted by itself, while the server was down."""

    def __init__(self) -> None:
        self._logs: OrderedDict[str, UnitLog] = OrderedDict()

    def decide(self, claims: Sequence[Claim], cost: int, policy: WhenDown | None) -> Decision:
        """Decide by the rules' policies, or by `policy` if given."""
        now = monotonic()
        known: list[Claim] = []
        states: list[int] = []
        shared: list[tuple[UnitLog, float, int]] = []
        for claim in claims:
            fallback = claim.rule.when_down if policy is None else policy
            if fallback == "open":
                continue
            known.append(claim)
            if isinstance(fallback, LocalShare):
                log, units = self._log(claim, now), claim.cost or cost
                states += _share_state(log, claim, units, fallback, now)
                shared.append((log, now + claim.rule.algorithm.per / 1000, units))
            else:
                states += (claim.rule.algorithm.used(claim._settings, 0), _CLOSED_RETRY, _CLOSED_RETRY)
        allowed = not any(states[1::3])
        if allowed:
            for log, free_at, units in shared:
                log.add(free_at, units)
        reply = [int(allowed), 0, *states]
        return Decision(allowed, tuple(known), (), cost, reply, monotonic(), source="outage")

    def _log(self, claim: Claim, now: float) -> UnitLog:
        log = self._logs.get(claim.id)
        if log is None:
            if len(self._logs) >= _SUBJECTS_CACHED:
                self._logs.popitem(last=False)
            log = self._logs[claim.id] = UnitLog()
        log.drop_free(now)
        return log


def numbers(reply: bytes) -> list[int]:
    """The six-byte numbers of a reply."""
    return [_number(reply[start : start + 6], "big") for start in range(0, len(reply), 6)]


def usage(reply: Reply) -> list[ClaimState]:
    """Of each claim in a reply without units taken: used units, ms until there is room, ms until unused."""
    flat = cast("list[int]", reply)
    return list(zip(flat[2::3], flat[3::3], flat[4::3], strict=True))


def _share_state(log: UnitLog, claim: Claim, cost: int, policy: LocalShare, now: float) -> ClaimState:
    """Used units, ms until there is room in the share, ms until the share is unused."""
    share = max(1, claim.limit // policy.of) if claim.limit else 0
    entries, used = log.entries, log.used
    over = used + cost - share
    left = share - used - cost if over <= 0 else share - used
    wait = 0 if over <= 0 else _CLOSED_RETRY
    if over > 0 and cost <= share:
        freed = accumulate(units for _, units in entries)
        free_at = next(when for (when, _), units in zip(entries, freed, strict=True) if units >= over)
        wait = max(1, round((free_at - now) * 1000))
    reset = round((entries[-1][0] - now) * 1000) if entries else 0
    return claim.rule.algorithm.used(claim._settings, left), wait, reset


def _wait(outcome: Outcome) -> float:
    return float("inf") if outcome.retry_after is None else outcome.retry_after


def _room(outcome: Outcome) -> float:
    return outcome.remaining / outcome.limit if outcome.limit else 0.0
