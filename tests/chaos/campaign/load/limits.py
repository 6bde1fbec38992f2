"""Whether a limit was exceeded: more admissions than it allows, in a period in which nothing excuses it.

Counters have the role `queue` in every service: when a queue's master dies, its last second of counts may be
lost, and while the queue is unavailable, a rule's own policy decides (a share per process, or a refusal). So
admissions are judged in periods that lie wholly between two such times. A request takes time; it was counted
at some time between its start and its end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from tests.chaos.campaign.ledger import Ledger

_PARTS = ("queue", "queue-crash")


class Admitted(NamedTuple):
    """A request that a limit admitted: its start and end, and the clock's hour (or minute) then."""

    began: float
    ended: float
    hours: tuple[int, int] = (0, 0)


class LimitBook:
    """All admissions by one rule, for each subject."""

    def __init__(self, ledger: Ledger, system: str, rule: str, limit: int, per: float) -> None:
        self._ledger = ledger
        self._system, self._rule = system, rule
        self._limit, self._per = limit, per
        self._admitted: dict[str, list[Admitted]] = defaultdict(list)

    def admit(self, subject: str, admitted: Admitted) -> None:
        """Record an admitted request of a subject."""
        self._admitted[subject].append(admitted)

    def check(self) -> None:
        """Report every subject that exceeded the limit within an undisturbed window."""
        for subject, admitted in self._admitted.items():
            worst = max((self._together(place, admitted) for place in range(len(admitted))), default=0)
            self._ledger.expect(
                worst <= self._limit,
                self._system,
                f"no more than the limit of {self._rule}",
                f"{worst} were admitted of {subject}, {self._limit} are allowed in {self._per:g} s",
            )

    def _together(self, first: int, admitted: list[Admitted]) -> int:
        """Count the requests that were certainly admitted within one window that begins with this one."""
        start = admitted[first]
        found = 0
        for each in admitted[first:]:
            within = each.ended - start.began < self._per and start.hours[0] == each.hours[1]
            if not within or self._ledger.timeline.disturbed(_PARTS, start.began, each.ended):
                break
            found += 1
        return found
