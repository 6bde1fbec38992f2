"""Slides under load: accepted presentations are written once, progress has no gaps, blocked users stay out.

Guaranteed, and checked here:

- an accepted presentation is written in the end: its job is done, once, its slides are numbered 1 to n with
  none missing and none doubled, and each of its steps is recorded once. SQL has it, so nothing excuses a
  loss;
- a worker keeps running whatever happens to its servers;
- a client that follows a job gets every event once and in order, or a notice that some were missed, and gets
  the end;
- a session of a blocked user is never accepted again: the cache may lose it, and nothing brings it back;
- each answered view of a shared presentation is counted once. Excused: the last second of a queue's master
  that died, in which a view may be lost; none is counted twice because of it;
- each presentation is charged once, with its slides and its tokens: an organization's usage in SQL is in the
  end not less than what its settled jobs cost, nor more than all its jobs. Excused: a job that was settling
  when a queue's master died, which may not be charged; none is charged twice because of it;
- at most 10 sign-in attempts per minute from an address, in periods in which the queue was undisturbed;
- a plan without a limit has none: the change of a plan is neither lost nor undone by a stale copy;
- what an editor changed, shared and withdrew holds, and webhooks are called: `slide_edits`;
- an API key works until it is revoked, and never again: `access_keys`;
- no more presentations in a month, and no more requests in a minute, than a plan allows: `overdraft`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

import httpx

from ephemera_services.runtime import DEMO_PASSWORD
from ephemera_services.slides.keys import USAGE
from tests.chaos.campaign.load.access_keys import AccessKeys
from tests.chaos.campaign.load.charges import CHARGED, JOBS, MEASURES, Bounds, Job, bounds
from tests.chaos.campaign.load.limits import Admitted, LimitBook
from tests.chaos.campaign.load.model import TOKENS, Model
from tests.chaos.campaign.load.overdraft import EMAIL, Overdraft
from tests.chaos.campaign.load.service_load import Load
from tests.chaos.campaign.load.slide_edits import SlideEdits
from tests.chaos.campaign.processes import Member
from tests.services.slides_users import OPERATOR, credentials

_ADMIN, _EDITOR = "root@company.example", "anna@company.example"
_SLIDES = 4
_STEPS = 3 * _SLIDES + 3  # outline; a start, a slide and its row for each; filing, usage
_THINKS = 0.15  # seconds that the model takes for an answer
_SILENCE = (10.0, 40.0)  # seconds; a stream that is alive says so every 15, which is too late for some
_LOGINS, _MINUTE = 10, 60.0
_FOLLOWED_FOR = 150.0  # seconds: while all is quiet, SQL is asked for the end every 60


@dataclass
class Deck:
    """An accepted presentation, and the events that a follower got."""

    presentation_id: str
    job_id: str
    events: list[tuple[str, int]] = field(default_factory=list)
    missed: bool = False
    ended: bool = False
    position: str = ""  # the last event's id


class SlidesLoad(Load):
    """Authors who follow their presentations, an administrator who blocks users, and visitors."""

    system = "slides"

    def staff(self) -> list[Member]:
        """Return one or two serving processes, and two workers: one continues where the other dies."""
        self._model = Model(_THINKS)
        self._following: set[asyncio.Task[None]] = set()
        environment = {
            "EPHEMERA_SLIDES_DEMO": "true",
            "EPHEMERA_SLIDES_PASSWORD_MEMORY": "8",
            "EPHEMERA_SLIDES_SECURE_COOKIES": "false",
            "EPHEMERA_SLIDES_LOGINS_PER_MINUTE": str(_LOGINS),
            "EPHEMERA_SLIDES_WRONG_PASSWORDS_PER_HOUR": "1000000",
            "EPHEMERA_SLIDES_SHARED_READS_PER_MINUTE": "1000000",
            "EPHEMERA_SLIDES_OPERATOR_TOKEN": OPERATOR["authorization"].partition(" ")[2],
            "EPHEMERA_SLIDES_VIEWS_FLUSH": "5s",
            "EPHEMERA_SLIDES_USAGE_FLUSH": "5s",
            "EPHEMERA_SLIDES_MODEL_URL": self._model.url,
            "EPHEMERA_SLIDES_WEBHOOKS_ANYWHERE": "true",
        }
        serving = [
            self.member(place, "serve", "slides", **environment) for place in ((0,) if self.brief else (0, 1))
        ]
        working = [
            self.member(place, "worker", "slides", "--processes", "1", **environment) for place in (0, 1)
        ]
        return [*serving, *working]

    async def __aenter__(self) -> Self:
        self._model.__enter__()
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        await super().__aexit__()
        await asyncio.to_thread(self._model.__exit__)

    async def prepare(self) -> None:
        """An organization that has limits on sign-ins alone, and a presentation that is shared."""
        self.decks: list[Deck] = []
        self.blocked: list[str] = []
        self.views: list[float] = []  # when they were answered
        self.uncertain_views = 0
        self._cookies: dict[str, str] = {}
        self.logins = LimitBook(self.ledger, self.system, "sign-ins from an address", _LOGINS, _MINUTE)
        self._guesser = self.any_address()
        self.overdraft = Overdraft(self, _SLIDES)
        answer = await self.request_until_ok("sign in", "POST", "/auth/login", json=credentials(_ADMIN))
        path = f"/operator/organizations/{answer.json()['organization_id']}/plan"
        plan = {"plan": "enterprise", "requests_per_minute": 1_000_000}
        await self.request_until_ok("plan", "PUT", path, json=plan, headers=OPERATOR)
        form = {"topic": "A shared one", "slides": _SLIDES}
        made = await self.request_until_ok(
            "present", "POST", "/presentations", json=form, headers=await self._as(_EDITOR)
        )
        self._shared = made.json()["presentation_id"]
        edited = await self.request_until_ok(
            "present", "POST", "/presentations", json=form, headers=await self._as(_EDITOR)
        )
        jobs = [made.json()["job_id"], edited.json()["job_id"]]
        await self.eventually("the first presentations are written", lambda: self._waiting(jobs))
        self.edits = SlideEdits(self, lambda: self._as(_EDITOR), self._model.hook)
        self.keys = AccessKeys(self, lambda: self._as(_EDITOR))
        await self.edits.prepare(edited.json()["presentation_id"], await self._as(_ADMIN))
        path = f"/presentations/{self._shared}/shares"
        self.link = (
            await self.request_until_ok("share", "POST", path, headers=await self._as(_EDITOR))
        ).json()["url"]

    def actors(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the actors."""
        sharing = [self._view, self._view, self.edits.share]
        users = [self._block, self._return, self._guess, self._overdraw, self.keys.act]
        return [self._present, self.edits.edit, *sharing, *users]

    async def settle(self) -> None:
        """Wait for the jobs, their followers, and the counts."""
        await self.eventually("a presentation that was accepted is written", self._unwritten)
        if self._following:
            await asyncio.wait(self._following, timeout=_FOLLOWED_FOR)
        jobs = [deck.job_id for deck in self.decks]
        await self.eventually(
            "a presentation that was written is announced once", lambda: self.edits.unannounced(jobs)
        )
        await self.eventually("a view that was answered is counted", self._uncounted)
        await self.eventually("a presentation that was written is charged", self._uncharged)

    async def check(self) -> None:
        """Check presentations, views, followers, charges, and that blocked users stay out."""
        for deck in self.decks:
            self._check_deck(deck)
        for cookie in self.blocked:
            for member in self.services:
                await self._come_back(cookie, member)
        counted, most = self._counted(), len(self.views) + self.uncertain_views
        self.ledger.expect(
            counted <= most, self.system, "a view is counted once", f"{counted} of at most {most}"
        )
        self._check_charges()
        self.logins.check()
        self.overdraft.check(self._charges)
        await self.edits.check(self._model.received)
        await self.keys.check()

    def _check_deck(self, deck: Deck) -> None:
        numbers = self.rows(
            "SELECT number FROM slides.presentation_slides WHERE presentation_id = %s ORDER BY number",
            deck.presentation_id,
        )
        found = [int(number) for (number,) in numbers]
        self.ledger.expect(
            found == list(range(1, _SLIDES + 1)),
            self.system,
            "each slide is there once",
            f"{deck.job_id}: {found}",
        )
        recorded = self.rows("SELECT name FROM slides.jobs_steps WHERE job_id = %s", deck.job_id)
        steps = [(name,) for (name,) in recorded if not str(name).startswith("failed:")]  # of models
        names = {str(name) for (name,) in steps}
        self.ledger.expect(
            len(steps) == len(names) == _STEPS,
            self.system,
            "each step is recorded once",
            f"{deck.job_id}: {steps}",
        )
        whole = [
            (kind, each) for each in range(1, _SLIDES + 1) for kind in ("slide_started", "slide_completed")
        ]
        if deck.missed:
            in_order = deck.events == sorted(set(deck.events), key=whole.index)
            self.ledger.expect(
                in_order, self.system, "no event is delivered twice", f"{deck.job_id}: {deck.events}"
            )
        else:
            self.ledger.expect(
                deck.events == whole,
                self.system,
                "progress has no gap and no double",
                f"{deck.job_id}: {deck.events}",
            )
        self.ledger.expect(deck.ended, self.system, "a follower of a job gets its end", deck.job_id)

    def _check_charges(self) -> None:
        for organization, (limits, charged) in self._charges().items():
            self.ledger.expect(
                not limits.exceeds(charged),
                self.system,
                "no presentation is charged twice",
                f"{organization}: {MEASURES} are {charged}, at most {limits.most}",
            )
            if limits.in_doubt and charged[0] < limits.least[0] + limits.in_doubt:
                self.excuse("a presentation was not charged that was settling when the queue's master died")

    def _uncharged(self) -> str:
        """What SQL has too little of, or what is still on its way there."""
        counters = USAGE.counters
        keys = [
            space.key(shard=shard)
            for space in (counters.pending, counters.sealed)
            for shard in range(counters.shards.count)
        ]
        if waiting := self.world.servers.in_queue(self.system, *keys):
            return f"{waiting} batches of usage wait for SQL"
        for organization, (limits, charged) in self._charges().items():
            if limits.lacks(charged):
                return f"{organization}: {MEASURES} are {charged}, at least {limits.least}"
        return ""

    def _charges(self) -> dict[str, tuple[Bounds, tuple[int, ...]]]:
        """For each organization: what it can have been charged, and what it was."""
        charged = {str(whose): tuple(map(int, amounts)) for whose, *amounts in self.rows(CHARGED)}
        began = time.time() - time.monotonic()  # SQL has moments of the day
        jobs = [
            Job(
                str(whose),
                (1, _SLIDES, int(tokens) if settled else (_SLIDES + 1) * TOKENS),
                None if filed is None else float(filed) - began,
                None if settled is None else float(settled) - began,
            )
            for whose, tokens, filed, settled in self.rows(JOBS)
        ]
        expected = bounds(jobs, self.timeline.spans("queue-crash"))
        nothing = (0,) * len(MEASURES)
        return {
            whose: (expected.get(whose, Bounds([0, 0, 0], [0, 0, 0], 0)), charged.get(whose, nothing))
            for whose in expected.keys() | charged.keys()
        }

    def _unwritten(self) -> list[str]:
        rows = self.rows("SELECT id, state FROM slides.jobs")
        states = {str(job): str(state) for job, state in rows}
        accepted = [*(deck.job_id for deck in self.decks), *self.overdraft.accepted]
        return [f"{job} is {states.get(job)}" for job in accepted if states.get(job) != "done"]

    def _waiting(self, jobs: list[str]) -> list[tuple[object, ...]]:
        return self.rows("SELECT id, state FROM slides.jobs WHERE id = ANY(%s) AND state != 'done'", jobs)

    def _counted(self) -> int:
        rows = self.rows(
            "SELECT view_count FROM slides.presentation_shares WHERE presentation_id = %s", self._shared
        )
        return int(rows[0][0])

    def _uncounted(self) -> str:
        lost = sum(map(self.lost_in_a_crash, self.views))
        counted, least = self._counted(), len(self.views) - lost
        if counted < len(self.views) and counted >= least:
            why = "slides: views were lost with the queue's master, which died within a second of them"
            self.ledger.excused[why] = len(self.views) - counted
        return "" if counted >= least else f"{counted} of {len(self.views)}, {lost} of them in a crash"

    async def _as(self, email: str) -> dict[str, str]:
        """Return a user's cookie, after a sign-in if needed."""
        if email not in self._cookies:
            cookie = await self._sign_in(email)
            if cookie:
                self._cookies[email] = cookie
        return {"cookie": self._cookies.get(email, "")}

    async def _sign_in(self, email: str) -> str:
        form = credentials(email)
        answer = await self.ask("sign in", self.any_service(), "POST", "/auth/login", json=form)
        if answer is None or not answer.ok:
            return ""
        return answer.headers["set-cookie"].partition(";")[0]

    async def _present(self) -> None:
        """Have a presentation written, and follow it; not too many at once."""
        if len(self._following) < 4:
            form = {"topic": f"Topic {uuid4().hex[:8]}", "slides": _SLIDES}
            headers = await self._as(_EDITOR)
            answer = await self.ask(
                "present", self.any_service(), "POST", "/presentations", json=form, headers=headers
            )
            if answer is not None:
                self.ledger.expect(
                    answer.status != 402, self.system, "what a plan does not limit is not limited", _EDITOR
                )
            if answer is not None and answer.ok:
                begun = answer.json()
                deck = Deck(begun["presentation_id"], begun["job_id"])
                self.decks.append(deck)
                task = asyncio.create_task(self._follow(deck))
                self._following.add(task)
                task.add_done_callback(self._following.discard)
            elif answer is not None and answer.status == 401:
                self._cookies.pop(_EDITOR, None)
        await self.rest(1.0)

    async def _follow(self, deck: Deck) -> None:
        """Follow a job to its end, at whichever process, from the last event one has."""
        silence = self.chance.choice(_SILENCE)
        for _ in range(300):
            headers = await self._as(_EDITOR)
            if deck.position:
                headers = {**headers, "last-event-id": deck.position}
            url = f"{self.any_service().url}/jobs/{deck.job_id}/events"
            try:
                async with self._client.stream("GET", url, headers=headers, timeout=silence) as stream:
                    if stream.status_code == 204:
                        deck.ended = True
                    elif stream.status_code == 401:
                        self._cookies.pop(_EDITOR, None)
                    elif stream.status_code == 200:
                        await self._listen(deck, stream)
            except httpx.TransportError:
                self.ledger.unknown["slides.follow"] += 1
            if deck.ended:
                return
            await asyncio.sleep(0.3)

    async def _listen(self, deck: Deck, stream: httpx.Response) -> None:
        fields: dict[str, str] = {}
        async for line in stream.aiter_lines():
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
                continue
            if "data" in fields:
                deck.position = fields.get("id") or deck.position
                self._hear(deck, json.loads(fields["data"]))
                if deck.ended:
                    return
            fields = {}

    def _hear(self, deck: Deck, data: dict[str, Any]) -> None:
        self.ledger.acknowledged["slides.progress"] += 1
        kind = data.get("event_type")
        if kind in ("slide_started", "slide_completed"):
            deck.events.append((kind, data["slide_number"]))
        elif kind in ("generation_done", "error"):
            deck.ended = True
        elif data.get("recovered") is False:
            deck.ended = deck.ended or bool(data.get("ended"))
            if deck.events or deck.ended or data["state"]["slides_completed"]:  # else it has not begun
                deck.missed = True
                self.excuse("progress was missed, and said to be")

    async def _view(self) -> None:
        """A visitor opens the shared link."""
        answer = await self.ask("view", self.any_service(), "GET", self.link)
        if answer is not None and answer.ok:
            self.views.append(answer.ended)
        elif answer is None or answer.status >= 500:
            self.uncertain_views += 1
        await self.rest(0.4)

    async def _block(self) -> None:
        """A new user signs in, and is blocked."""
        email = f"{uuid4().hex[:12]}@company.example"
        form = {"email": email, "password": DEMO_PASSWORD, "role": "viewer"}
        made = await self.ask(
            "add user", self.any_service(), "POST", "/admin/users", json=form, headers=await self._as(_ADMIN)
        )
        if made is not None and made.status == 401:
            self._cookies.pop(_ADMIN, None)
        if made is None or not made.ok:
            return await self.rest(1.0)
        cookie = await self._sign_in(email)
        path = f"/admin/users/{made.json()['user_id']}/blocked"
        for _ in range(5):
            if not cookie:
                break
            done = await self.ask(
                "block",
                self.any_service(),
                "PUT",
                path,
                json={"blocked": True},
                headers=await self._as(_ADMIN),
            )
            if done is not None and done.ok:
                self.blocked.append(cookie)
                break
            if done is not None and done.status == 401:
                self._cookies.pop(_ADMIN, None)
            await self.rest(0.5)
        return await self.rest(1.0)

    async def _return(self) -> None:
        """Try the cookie of a blocked user."""
        if self.blocked:
            await self._come_back(self.chance.choice(self.blocked[-50:]), self.any_service())
        await self.rest(0.5)

    async def _come_back(self, cookie: str, member: Member) -> None:
        answer = await self.ask("blocked session", member, "GET", "/auth/me", headers={"cookie": cookie})
        if answer is not None:
            self.ledger.expect(
                answer.status != 200, self.system, "a session of a blocked user is refused", member.name
            )

    async def _overdraw(self) -> None:
        """Ask for more than a small plan allows."""
        answer = await self.overdraft.ask(await self._as(EMAIL))
        if answer is not None and answer.status == 401:
            self._cookies.pop(EMAIL, None)
        await self.rest(3.0)

    async def _guess(self) -> None:
        """Guess passwords from one address, faster than is allowed."""
        minute = int(time.time() // _MINUTE)
        form = credentials(_EDITOR, "a guess")
        answer = await self.ask(
            "guess", self.any_service(), "POST", "/auth/login", json=form, address=self._guesser
        )
        if answer is not None and answer.status == 401:
            minutes = (minute, int(time.time() // _MINUTE))
            self.logins.admit(self._guesser, Admitted(answer.began, answer.ended, minutes))
        await self.rest(0.5)
