"""What a rule does while the server is away: let everybody in, nobody, or this process's share of the limit.

`local_share(of=8)` is for eight processes behind one balancer: each admits an eighth of the limit (at least
one unit) in any window of the rule's period, counted in its own memory, exactly. Eight of them together then
keep the limit, or admit eight where the limit is below that. What they admit is not told to the server when
it is back.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from time import monotonic
from typing import Literal, TypeAlias

from ephemera.errors import InvalidDeclaration
from ephemera.patterns.rate_limits._claims import Claim

Log: TypeAlias = "deque[tuple[float, int]]"
"""When units are free again by `time.monotonic`, and how many; the earliest first."""

_SUBJECTS_KEPT = 10_000  # then the one that came first is forgotten
_TRY_AGAIN = 1000  # ms that a closed rule asks callers to wait


@dataclass(frozen=True, slots=True)
class LocalShare:
    """One of `of` processes that share a limit."""

    of: int


WhenDown: TypeAlias = Literal["open", "closed"] | LocalShare
"""Who decides while the server is away: admit, refuse, or this process by its share of the limit."""


def local_share(*, of: int) -> LocalShare:
    """The policy of one among `of` processes: each admits its part of the limit by itself."""
    if of < 1:
        raise InvalidDeclaration("local_share", f"of={of} processes", "give how many share the limit")
    return LocalShare(of)


def check_policy(rule: str, policy: WhenDown) -> WhenDown:
    """A policy that there is."""
    if policy not in ("open", "closed") and not isinstance(policy, LocalShare):
        raise InvalidDeclaration(
            rule, f"when_down={policy!r} is no policy", "use 'open', 'closed' or local_share(of=...)"
        )
    return policy


class Shares:
    """What this process admitted by itself: for each claim, when its units are free again."""

    def __init__(self) -> None:
        self._logs: OrderedDict[str, Log] = OrderedDict()

    def decide(
        self, claims: Sequence[Claim], cost: int, policy: WhenDown | None
    ) -> tuple[list[Claim], list[int]]:
        """The claims that something is known of, and a reply as the script would give it for them."""
        now = monotonic()
        known: list[Claim] = []
        numbers: list[int] = []
        shared: list[tuple[Log, float, int]] = []
        for claim in claims:
            chosen = claim.rule.when_down if policy is None else policy
            if chosen == "open":
                continue
            known.append(claim)
            if isinstance(chosen, LocalShare):
                log, units = self._log(claim, now), claim.cost or cost
                numbers += _stand(log, claim, units, chosen, now)
                shared.append((log, now + claim.rule.algorithm.per / 1000, units))
            else:
                numbers += (claim.rule.algorithm.spent(claim.settings, 0), _TRY_AGAIN, _TRY_AGAIN)
        allowed = not any(numbers[1::3])
        if allowed:
            for log, free_at, units in shared:
                log.append((free_at, units))
        return known, [int(allowed), 0, *numbers]

    def _log(self, claim: Claim, now: float) -> Log:
        log = self._logs.get(claim.id)
        if log is None:
            if len(self._logs) >= _SUBJECTS_KEPT:
                self._logs.popitem(last=False)
            log = self._logs[claim.id] = deque()
        while log and log[0][0] <= now:
            log.popleft()
        return log


def _stand(log: Log, claim: Claim, cost: int, policy: LocalShare, now: float) -> tuple[int, int, int]:
    """What is used, ms until there is room in the share, ms until the share is unused."""
    share = max(1, claim.limit // policy.of) if claim.limit else 0
    used = sum(units for _, units in log)
    over = used + cost - share
    left = share - used - cost if over <= 0 else share - used
    wait = 0 if over <= 0 else _TRY_AGAIN
    if over > 0 and cost <= share:
        gone = accumulate(units for _, units in log)
        free_at = next(when for (when, _), freed in zip(log, gone, strict=True) if freed >= over)
        wait = max(1, round((free_at - now) * 1000))
    reset = round((log[-1][0] - now) * 1000) if log else 0
    return claim.rule.algorithm.spent(claim.settings, left), wait, reset
