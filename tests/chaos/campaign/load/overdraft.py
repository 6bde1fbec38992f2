"""A user on a small plan who constantly asks for more than it allows: by the minute and by the month.

Guaranteed: no more presentations are accepted in a month than the plan allows, and no more requests in a
minute. Excused for the month: one more for each presentation whose reservation or charge was lost with a
queue's master; and one more for each whose acceptance was not answered, because its reservation was released
by a process that did not know that SQL had it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ephemera_services.slides.plans import PLANS
from tests.chaos.campaign.load.charges import Bounds
from tests.chaos.campaign.load.limits import Admitted, LimitBook
from tests.chaos.campaign.load.service_load import Answer, Load

EMAIL = "ivan@studio.example"
_PLAN = PLANS["free"]
_MINUTE = 60.0
_NOT_LET_IN = (401, 429)
BEGUN = """
SELECT count(*) FROM slides.jobs JOIN slides.users ON users.id::text = jobs.arguments ->> 'user_id'
WHERE jobs.kind = 'generate' AND users.email = %s
"""
WHOSE = "SELECT organization_id::text FROM slides.users WHERE email = %s"


class Overdraft:
    """What one user on the plan `free` requested, and got."""

    def __init__(self, load: Load, slides: int) -> None:
        self._load = load
        self._form = {"topic": "One more", "slides": slides}
        self._rate = LimitBook(
            load.ledger, load.system, "requests of a user", _PLAN.requests_per_minute, _MINUTE
        )
        self._since = datetime.now(UTC)
        self.accepted: dict[str, tuple[float, float]] = {}
        """When each job was requested and accepted, by its id."""

    async def ask(self, cookie: Mapping[str, str]) -> Answer | None:
        """Request a presentation, whatever was answered before."""
        load, minute = self._load, int(time.time() // _MINUTE)
        answer = await load.ask(
            "overdraw", load.any_service(), "POST", "/presentations", json=self._form, headers=cookie
        )
        if answer is not None and answer.status < 500 and answer.status not in _NOT_LET_IN:
            minutes = (minute, int(time.time() // _MINUTE))
            self._rate.admit(EMAIL, Admitted(answer.began, answer.ended, minutes))
        if answer is not None and answer.ok:
            self.accepted[answer.json()["job_id"]] = (answer.began, answer.ended)
        return answer

    def check(self, charges: Callable[[], Mapping[str, tuple[Bounds, object]]]) -> None:
        """Report what exceeds the plan, for the month and for the minute."""
        load = self._load
        self._rate.check()
        ((taken,),), ((whose,),) = load.rows(BEGUN, EMAIL), load.rows(WHOSE, EMAIL)
        unconfirmed = int(taken) - len(self.accepted)
        crashes = load.timeline.spans("queue-crash")
        lost = sum(
            any(begun <= ended and began <= end for begun, end in crashes)
            for began, ended in self.accepted.values()
        )
        of_theirs = charges().get(str(whose))
        excused = unconfirmed + lost + (of_theirs[0].in_doubt if of_theirs else 0)
        now, most = datetime.now(UTC), _PLAN.max_presentations_per_month or 0
        months = 1 + (now.month != self._since.month)
        load.ledger.expect(
            taken <= most * months + excused,
            load.system,
            "no more presentations than the plan has for a month",
            f"{taken} were begun, the plan has {most}, and {excused} are excused",
        )
        if taken > most * months:
            load.excuse("a presentation more than the plan has, for one that a queue's master forgot")
