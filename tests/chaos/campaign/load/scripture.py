"""Scripture under load: after an acknowledged ingest no reader sees old text; each event takes effect once.

Guaranteed, and checked here:

- once an ingest is acknowledged, no reader sees the old passage, on any process, whatever hangs or is down.
  Nothing excuses this one;
- for each user who was added, and each plan that was changed, history has one row, and for each user who was
  added there is one welcome mail. Nothing excuses a loss: SQL has the event until replicas have it;
- at most 40 words of the lexicon per minute from an address, by a token bucket, while the queue is available.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import uuid4

import msgspec

from ephemera.patterns.tokens import Claims, KeyRing, Tokens
from tests.chaos.campaign.load.limits import Admitted, LimitBook
from tests.chaos.campaign.load.service_load import Answer, Load
from tests.chaos.campaign.processes import Member

_VERSES = 4
_WORDS, _MINUTE = 40, 60.0
_PLENTY = "1000000"


class ScriptureLoad(Load):
    """An editor who ingests passages, readers, new users, and one reader who exceeds the limit."""

    system = "scripture"

    def staff(self) -> list[Member]:
        """Return two processes, which also handle events."""
        self._tokens, keys = _issuer()
        key_set = self.folder / "jwks.json"
        key_set.write_bytes(keys)
        environment = {
            "EPHEMERA_SCRIPTURE_JWKS": str(key_set),
            "EPHEMERA_SCRIPTURE_REVOCATIONS": "none",
            "EPHEMERA_SCRIPTURE_PASSAGES_FREE": _PLENTY,
            "EPHEMERA_SCRIPTURE_PASSAGES_PAID": _PLENTY,
            "EPHEMERA_SCRIPTURE_LEXICON_FREE": str(_WORDS),
        }
        return [self.member(place, "serve", "scripture", **environment) for place in (0, 1)]

    async def prepare(self) -> None:
        """Ingest the first text of each verse."""
        self.written = dict.fromkeys(range(1, _VERSES + 1), 0)
        self.acknowledged = dict.fromkeys(self.written, 0)
        self._at: dict[int, float] = {}
        self._word = str(self.rows("SELECT min(id) FROM scripture.lexicon")[0][0])
        self.users: list[str] = []
        self.changed: list[str] = []  # whose plan was changed
        self._attempted: set[str] = set()
        self.words = LimitBook(self.ledger, self.system, "words from an address", 2 * _WORDS, _MINUTE)
        self._hasty = self.any_address()
        await self.request_until_ok(
            "ingest", "POST", "/ingest/passages", json=self._document(*self.written), headers=self._admin()
        )

    def actors(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the actors."""
        return [self._ingest, self._read, self._read, self._read, self._add_user, self._hurry]

    async def settle(self) -> None:
        """Wait for events, which may have to wait for the outbox and a dead consumer's lease."""
        await self.eventually("an event that was acknowledged is handled", self._unhandled)

    async def check(self) -> None:
        """Check that everything took effect once, and that the passages are as ingested."""
        history = Counter(
            (str(user), str(what))
            for user, what in self.rows("SELECT user_id, what FROM scripture.user_history")
        )
        for user in self._attempted:
            for what in ("created", "plan paid"):
                times = history[user, what]
                self.ledger.expect(
                    times <= 1, self.system, "an event has its effect once", f"{user} {what}: {times}"
                )
        for verse, number in self.acknowledged.items():
            for member in self.services:
                answer = await self.ask("read", member, "GET", f"/passages/jude.1.{verse}")
                if answer is not None and answer.ok:
                    self._judge(verse, number, answer)
        self.words.check()

    def _unhandled(self) -> list[str]:
        history = {(str(u), str(w)) for u, w in self.rows("SELECT user_id, what FROM scripture.user_history")}
        welcomed = {str(key) for (key,) in self.rows("SELECT key FROM scripture.mails")}
        missing = [f"history of {user}" for user in self.users if (user, "created") not in history]
        missing += [f"plan of {user}" for user in self.changed if (user, "plan paid") not in history]
        missing += [f"mail to {user}" for user in self.users if f"welcome:{user}" not in welcomed]
        return missing

    def _document(self, *verses: int) -> dict[str, object]:
        texts = [(verse, {"web": f"Text {self.written[verse]} of verse {verse}."}) for verse in verses]
        return {
            "items": [{"book": "jude", "chapter": 1, "verse": verse, "texts": text} for verse, text in texts]
        }

    async def _ingest(self) -> None:
        """Ingest new texts of one or two verses, or replace the chapter."""
        whole = self.chance.random() < 0.3
        verses = (
            list(self.written)
            if whole
            else self.chance.sample(list(self.written), self.chance.choice([1, 2]))
        )
        for verse in verses:
            self.written[verse] += 1
        numbers = {verse: self.written[verse] for verse in verses}
        answer = await self.ask(
            "replace" if whole else "ingest",
            self.any_service(),
            "PUT" if whole else "POST",
            "/ingest/chapters?book=jude&chapter=1&translation=web" if whole else "/ingest/passages",
            json=self._document(*verses),
            headers=self._admin(),
        )
        if answer is not None and answer.ok:
            for verse, number in numbers.items():
                self.acknowledged[verse] = number
                self._at[verse] = answer.ended
        await self.rest(0.1)

    async def _read(self) -> None:
        """Read a passage, or its chapter."""
        least = dict(self.acknowledged)
        if self.chance.random() < 0.7:
            verse = self.chance.choice(list(least))
            answer = await self.ask("read", self.any_service(), "GET", f"/passages/jude.1.{verse}")
            if answer is not None and answer.ok:
                self._judge(verse, least[verse], answer)
        else:
            answer = await self.ask("read", self.any_service(), "GET", "/chapters/jude.1?translation=web")
            if answer is not None and answer.ok:
                for shown in answer.json()["verses"]:
                    if shown["verse"] in least:
                        self._compare(shown["verse"], least[shown["verse"]], shown["text"], answer)
        await self.rest(0.12)

    def _judge(self, verse: int, least: int, answer: Answer) -> None:
        self._compare(verse, least, answer.json()["texts"]["web"], answer)

    def _compare(self, verse: int, least: int, text: str, answer: Answer) -> None:
        seen = int(text.split()[1])
        since = answer.began - self._at.get(verse, 0.0)
        self.ledger.expect(
            least <= seen,
            self.system,
            "no reader sees what an acknowledged ingest has replaced",
            f"{answer.member.name} gave text {seen} of verse {verse}, {since:.2f} s after {least} was there",
        )

    async def _add_user(self) -> None:
        """Add a user, who may change plan."""
        user = str(uuid4())
        self._attempted.add(user)
        form = {"user_id": user, "email": f"{user}@example.com", "name": "Ann", "plan": "free"}
        answer = await self.ask(
            "add user", self.any_service(), "POST", "/users", json=form, headers=self._admin()
        )
        if answer is not None and answer.ok:
            self.users.append(user)
            if self.chance.random() < 0.5:
                path = f"/users/{user}/plan"
                changed = await self.ask(
                    "change plan",
                    self.any_service(),
                    "PUT",
                    path,
                    json={"plan": "paid"},
                    headers=self._admin(),
                )
                if changed is not None and changed.ok:
                    self.changed.append(user)
        await self.rest(0.6)

    async def _hurry(self) -> None:
        """Read the lexicon too fast: a full bucket and its refill admit at most twice the limit."""
        answer = await self.ask(
            "hurry", self.any_service(), "GET", f"/lexicon/{self._word}", address=self._hasty
        )
        if answer is not None and answer.ok and "ratelimit" in answer.headers:
            self.words.admit(self._hasty, Admitted(answer.began, answer.ended))
        await self.rest(0.3)

    def _admin(self) -> dict[str, str]:
        now = time.time()
        claims = Claims(
            str(uuid4()),
            uuid4().hex,
            "access",
            now - 60,
            now + 800,
            family=uuid4().hex,
            extra={"role": "admin"},
        )
        return {"authorization": f"Bearer {self._tokens.sign(claims)}"}


def _issuer() -> tuple[Tokens, bytes]:
    """The issuer of administrators' tokens, and its public keys."""
    ring = KeyRing.generate(overlap=timedelta(days=1))
    return Tokens(ring, "ephemera-identity", "ephemera"), msgspec.json.encode(ring.jwks())
