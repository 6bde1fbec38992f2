"""An editor who changes, orders and shares slides, and a webhook: what was acknowledged holds.

Guaranteed:

- an edit that was acknowledged is what every process reads, and what SQL has in the end, unless a later edit
  replaced it. An edit without an answer may be done or not, or be done later;
- the slides of a presentation keep their numbers from 1 on, whatever reorders them, and their last order;
- a public link opens once its creation is acknowledged, and never again once its withdrawal is;
- each presentation that was written has one delivery for a webhook that existed before, and what is recorded
  as delivered was received.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tests.chaos.campaign.load.service_load import Answer, Load
from tests.chaos.campaign.processes import Member

_T = TypeVar("_T")
_REMEMBERED = 200  # links that are tried again

Headers = Callable[[], Awaitable[dict[str, str]]]


class LastWrite(Generic[_T]):
    """The values that a field may have: the last one acknowledged, and those without an answer."""

    def __init__(self, value: _T) -> None:
        self.acknowledged = value
        self.in_doubt: list[_T] = []

    def written(self, value: _T, answer: Answer | None) -> None:
        """Record a write and its answer; one that was refused changes nothing."""
        if answer is not None and answer.ok:
            self.acknowledged = value
        elif answer is None or answer.status >= 500:
            self.in_doubt.append(value)

    def allows(self, value: _T) -> bool:
        """Whether the field may have this value."""
        return value == self.acknowledged or value in self.in_doubt


class SlideEdits:
    """One presentation that is edited and shared, by one editor."""

    def __init__(self, load: Load, headers: Headers, hook: str) -> None:
        self._load = load
        self._headers = headers
        self._hook = hook
        self._number = 0
        self.withdrawn: list[str] = []
        self._open = ""
        self._withdrawal_in_doubt = False

    async def prepare(self, presentation_id: str, administrator: dict[str, str]) -> None:
        """Take a presentation that is written, and create the webhook as an administrator."""
        load = self._load
        self._path = f"/presentations/{presentation_id}"
        read = await load.request_until_ok("read deck", "GET", self._path, headers=await self._headers())
        ids = [str(slide["slide_id"]) for slide in read.json()["slides"]]
        titles = {str(slide["slide_id"]): str(slide["title"]) for slide in read.json()["slides"]}
        self._titles = {each: LastWrite(titles[each]) for each in ids}
        self.order = LastWrite(ids)
        hook = {"url": self._hook}
        made = await load.request_until_ok("webhook", "POST", "/webhooks", json=hook, headers=administrator)
        self.webhook_id = str(made.json()["webhook_id"])

    async def edit(self) -> None:
        """Change a title or the order, and read the presentation at any process."""
        load = self._load
        self._number += 1
        if load.chance.random() < 0.3:
            ids = load.chance.sample(list(self._titles), len(self._titles))
            answer = await self._ask("reorder", "PUT", f"{self._path}/order", {"slide_ids": ids})
            self.order.written(ids, answer)
        else:
            slide_id, title = load.chance.choice(list(self._titles)), f"Edit {self._number}"
            answer = await self._ask("edit", "PATCH", f"{self._path}/slides/{slide_id}", {"title": title})
            self._titles[slide_id].written(title, answer)
        read = await self._ask("read deck", "GET", self._path)
        if read is not None and read.ok:
            self._judge([(str(each["slide_id"]), str(each["title"])) for each in read.json()["slides"]])
        await load.rest(0.5)

    async def share(self) -> None:
        """Create the link, open it, withdraw it, and try one that was withdrawn."""
        load = self._load
        answer = await self._ask("share", "POST", f"{self._path}/shares", {"days": 7})
        if answer is not None and answer.ok:
            link = str(answer.json()["url"])
            if self._open not in ("", link):
                self.withdrawn.append(self._open)  # a withdrawal without an answer, which was done
            self._open = link
            opened = await load.ask("open share", load.any_service(), "GET", link)
            if opened is not None and not self._withdrawal_in_doubt:
                load.ledger.expect(opened.status != 404, load.system, "a link that was created opens", link)
            ended = await self._ask("withdraw", "DELETE", f"{self._path}/shares")
            if ended is not None and ended.ok:
                self.withdrawn.append(link)
                self._open = ""
                await self.come_back(link, load.any_service())
            elif ended is None or ended.status >= 500:
                self._withdrawal_in_doubt = True  # it may be done at any time from now on
        if self.withdrawn:
            await self.come_back(load.chance.choice(self.withdrawn[-_REMEMBERED:]), load.any_service())
        await load.rest(1.0)

    async def come_back(self, link: str, member: Member) -> None:
        """Open a link that was withdrawn."""
        answer = await self._load.ask("withdrawn share", member, "GET", link)
        if answer is not None:
            self._load.ledger.expect(
                answer.status != 200, self._load.system, "a withdrawn link opens nothing", member.name
            )

    async def check(self, received: set[str]) -> None:
        """Compare SQL with what was acknowledged, and try every withdrawn link at every process."""
        load = self._load
        rows = load.rows(
            "SELECT id, title, number FROM slides.presentation_slides WHERE presentation_id = %s "
            "ORDER BY number",
            self._path.rpartition("/")[2],
        )
        self._judge([(str(slide_id), str(title)) for slide_id, title, _ in rows])
        numbers = [int(number) for *_, number in rows]
        in_order = numbers == list(range(1, len(self._titles) + 1))
        load.ledger.expect(in_order, load.system, "edited slides keep their numbers", str(numbers))
        for link in self.withdrawn[-_REMEMBERED:]:
            for member in load.services:
                await self.come_back(link, member)
        said = load.rows("SELECT id FROM slides.webhook_deliveries WHERE state = 'delivered'")
        missing = {str(each) for (each,) in said} - received
        load.ledger.expect(
            not missing, load.system, "what is recorded as delivered was received", str(missing)
        )

    def unannounced(self, job_ids: list[str]) -> list[str]:
        """The written presentations that do not have exactly one delivery."""
        rows = self._load.rows(
            "SELECT payload ->> 'job_id', count(*) FROM slides.webhook_deliveries WHERE webhook_id = %s "
            "GROUP BY 1",
            self.webhook_id,
        )
        counts = {str(job_id): int(count) for job_id, count in rows}
        return [f"{job_id}: {counts.get(job_id, 0)}" for job_id in job_ids if counts.get(job_id) != 1]

    def _judge(self, slides: list[tuple[str, str]]) -> None:
        """Compare slides, in their order, with what may be there."""
        ledger, system = self._load.ledger, self._load.system
        for slide_id, title in slides:
            expected = self._titles[slide_id]
            detail = f"{title!r} in place of {expected.acknowledged!r}"
            ledger.expect(expected.allows(title), system, "an edit that was acknowledged is there", detail)
        order = [slide_id for slide_id, _ in slides]
        ledger.expect(self.order.allows(order), system, "the last order of slides is there", str(order))

    async def _ask(self, what: str, method: str, path: str, body: object = None) -> Answer | None:
        load = self._load
        return await load.ask(
            what, load.any_service(), method, path, headers=await self._headers(), json=body
        )
