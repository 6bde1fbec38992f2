"""Whether a limit was exceeded: more admissions than it allows, in a time in which nothing excuses it.

Counters have the role `cache`: when the cache loses what it had, counting starts anew (at most one more
limit), and when it cannot be asked, a rule's own policy decides. So admissions are judged in stretches that
lie wholly between two such moments. A request lasts; it was counted at some moment between its beginning
and its end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from tests.chaos.campaign.ledger import Ledger

_PARTS = ("cache", "cache-lost")


class Admitted(NamedTuple):
    """A request that a limit let pass: when it began and had ended, and the clock's hour (or minute) then."""

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
        """A request of a subject was let pass."""
        self._admitted[subject].append(admitted)

    def check(self) -> None:
        """Report every subject of whom more was admitted than the limit, within its time, undisturbed."""
        for subject, admitted in self._admitted.items():
            worst = max((self._together(place, admitted) for place in range(len(admitted))), default=0)
            self._ledger.expect(
                worst <= self._limit,
                self._system,
                f"no more than the limit of {self._rule}",
                f"{worst} were admitted of {subject}, {self._limit} are allowed in {self._per:g} s",
            )

    def _together(self, first: int, admitted: list[Admitted]) -> int:
        """How many were surely admitted within one window that begins with this one."""
        start = admitted[first]
        found = 0
        for each in admitted[first:]:
            within = each.ended - start.began < self._per and start.hours[0] == each.hours[1]
            if not within or self._ledger.timeline.disturbed(_PARTS, start.began, each.ended):
                break
            found += 1
        return found
