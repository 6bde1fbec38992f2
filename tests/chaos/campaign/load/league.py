"""The league under load: no vote is lost or counted twice, and every acknowledged result is shown.

Guaranteed, and checked here:

- an acknowledged vote is in SQL once, with its choice, and SQL has no vote that was not cast. Excused: the
  last second of a queue's master that died;
- an acknowledged prediction is in SQL as it was placed, and an action of live control takes effect once,
  however often its request was sent;
- every poll that begins after a result was acknowledged shows it, on every process. Excused, as documented:
  while the cache is down or a process hangs (local copies are served), and for about a round trip on other
  processes;
- an ETag stands for one content only, and 304 is answered only for what the client has;
- an ended session is never accepted again: the cache may lose it, and nothing brings it back;
- at most 15 requests in 10 seconds on live routes from an address, in periods in which the queue was
  available.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from ephemera_services.league import DEMO_ADMINISTRATOR
from ephemera_services.runtime import DEMO_PASSWORD
from tests.chaos.campaign.load.limits import Admitted, LimitBook
from tests.chaos.campaign.load.service_load import Answer, Load
from tests.chaos.campaign.processes import Member

_RESULTS, _TABLE = "/api/league/results", "/api/league/table"
_SOON = 1.5  # seconds in which the server's word reaches another process
_MOST_GOALS = 99
_LIVE, _LIVE_PER = 15, 10.0
_CHOICES = ("home", "draw", "away")
_ANY_REVISION = 999_999_999_999_999  # cards here are never the same one, seen by two


@dataclass
class Result:
    """A match whose result is corrected repeatedly: a number that only grows."""

    match_id: int
    written: int = 0
    acknowledged: int = 0
    at: float = 0.0
    by: str = ""

    @staticmethod
    def score(number: int) -> dict[str, int]:
        """A number as a score."""
        return {"home_goals": number % (_MOST_GOALS + 1), "away_goals": number // (_MOST_GOALS + 1)}

    @staticmethod
    def number(score: list[int]) -> int:
        """A score as a number."""
        return score[0] + (_MOST_GOALS + 1) * score[1]


@dataclass
class Votes:
    """Votes: every attempt, and what was acknowledged, with its time."""

    attempted: dict[tuple[int, int], str] = field(default_factory=dict)
    acknowledged: dict[tuple[int, int], float] = field(default_factory=dict)


class LeagueLoad(Load):
    """Voters, a referee, polling readers, and one reader who polls too often."""

    system = "league"

    def staff(self) -> list[Member]:
        """Return two processes with a season and no limit on sign-ins."""
        environment = {
            "EPHEMERA_LEAGUE_PASSWORD_MEMORY": "8",
            "EPHEMERA_LEAGUE_SECURE_COOKIES": "false",
            "EPHEMERA_LEAGUE_DEMO": "true",
            "EPHEMERA_LEAGUE_DEMO_REFEREE": "false",
            "EPHEMERA_LEAGUE_SIGN_INS_PER_10_MINUTES": "1000000",
            "EPHEMERA_LEAGUE_REGISTRATIONS_PER_HOUR": "1000000",
            "EPHEMERA_LEAGUE_ALL_REGISTRATIONS_PER_HOUR": "1000000",
        }
        return [self.member(place, "serve", "league", **environment) for place in (0, 1)]

    async def prepare(self) -> None:
        """Find the matches: the last four of the season for results, the other open ones for votes."""
        found = self.rows("SELECT id, status FROM league.matches WHERE status <> 'finished' ORDER BY id")
        ids = [int(number) for number, _ in found]
        self._live_match = next(int(number) for number, status in found if status == "live")
        self.booked: dict[str, bool] = {}  # players with a card, and whether it was acknowledged
        self.predicted: dict[tuple[int, int], tuple[int, int]] = {}
        self.results = {number: Result(number) for number in ids[-4:]}
        self._matches = ids[:-4]
        self.votes = Votes()
        self.tags: dict[tuple[str, str], bytes] = {}
        self._known: dict[tuple[str, str], str] = {}  # the tag that a client of a process has of a path
        self.ended: list[str] = []  # cookies of sessions that are over
        self._referee = ""
        self.live = LimitBook(self.ledger, self.system, "live requests from an address", _LIVE, _LIVE_PER)
        self._hasty = self.any_address()

    def actors(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the actors."""
        return [
            self._vote,
            self._vote,
            self._finalize,
            self._book,
            self._poll,
            self._poll,
            self._hurry,
            self._return,
        ]

    async def settle(self) -> None:
        """Wait for the votes: they reach SQL within seconds, or when a dead process's batch is claimed."""
        await self.eventually("a vote that was acknowledged is in SQL", self._missing_votes)
        for result in self.results.values():
            if result.written:
                await self._see_last(result)

    async def check(self) -> None:
        """Check that SQL has exactly the votes that were cast, and that ended sessions stay ended."""
        found = {(user, match): choice for user, match, choice in self._cast()}
        for vote, choice in found.items():
            cast = self.votes.attempted.get(vote)
            self.ledger.expect(
                cast == choice, self.system, "a vote in SQL is what was cast", f"{vote}: {choice}"
            )
        self._check_predictions_and_cards()
        for cookie in self.ended:
            for member in self.services:
                await self._come_back(cookie, member)
        self.live.check()

    def _check_predictions_and_cards(self) -> None:
        query = "SELECT user_id, match_id, home_goals, away_goals FROM league.predictions"
        placed = {(int(user), int(match)): (home, away) for user, match, home, away in self.rows(query)}
        for key, goals in self.predicted.items():
            self.ledger.expect(
                placed.get(key) == goals,
                self.system,
                "a prediction that was acknowledged is in SQL",
                f"{key}: {placed.get(key)}, not {goals}",
            )
        shown = dict(
            self.rows("SELECT player, count(*) FROM league.events WHERE kind = 'card' GROUP BY player")
        )
        for player, acknowledged in self.booked.items():
            times = int(shown.get(player, 0))
            self.ledger.expect(
                times == 1 or (times == 0 and not acknowledged),
                self.system,
                "an action of live control takes effect once",
                f"the card of {player}: {times}",
            )

    def _cast(self) -> list[tuple[int, int, str]]:
        voters = {user for user, _ in self.votes.attempted}
        rows = self.rows("SELECT user_id, match_id, choice FROM league.votes")
        return [(int(user), int(match), str(choice)) for user, match, choice in rows if int(user) in voters]

    def _missing_votes(self) -> list[tuple[int, int]]:
        there = {(user, match) for user, match, _ in self._cast()}
        missing = [vote for vote in self.votes.acknowledged if vote not in there]
        lost = [vote for vote in missing if self.lost_in_a_crash(self.votes.acknowledged[vote])]
        if lost:
            why = "league: a vote was lost with the queue's master, which died within a second of it"
            self.ledger.excused[why] = len(lost)
        return [vote for vote in missing if vote not in lost]

    async def _vote(self) -> None:
        """A new user votes on all matches, and signs out."""
        name = uuid4().hex[:16]
        form = {"name": name, "password": DEMO_PASSWORD}
        answer = await self.ask("register", self.any_service(), "POST", "/api/users", json=form)
        if answer is None or not answer.ok:
            return await self.rest(0.5)
        user_id = int(answer.json()["user_id"])
        cookie = await self._sign_in(name)
        for match in self.chance.sample(self._matches, 10):
            if not cookie:
                break
            choice = self.chance.choice(_CHOICES)
            self.votes.attempted[user_id, match] = choice
            path = f"/api/matches/{match}/votes"
            headers = {"cookie": cookie}
            for _ in range(3):
                voted = await self.ask(
                    "vote", self.any_service(), "POST", path, json={"choice": choice}, headers=headers
                )
                if voted is not None and voted.status in (202, 409):  # 409: it was counted before
                    self.votes.acknowledged[user_id, match] = voted.ended
                    break
                await self.rest(0.3)
            await self._predict(user_id, match, headers)
            await self.rest(0.15)
        if cookie:
            gone = await self.ask(
                "sign out", self.any_service(), "DELETE", "/api/session", headers={"cookie": cookie}
            )
            if gone is not None and gone.ok:
                self.ended.append(cookie)
        return None

    async def _predict(self, user_id: int, match: int, headers: dict[str, str]) -> None:
        goals = (self.chance.randrange(10), self.chance.randrange(10))
        form = dict(zip(("home_goals", "away_goals"), goals, strict=True))
        path = f"/api/me/predictions/{match}"
        placed = await self.ask("predict", self.any_service(), "PUT", path, json=form, headers=headers)
        if placed is not None and placed.ok:
            self.predicted[user_id, match] = goals

    async def _sign_in(self, name: str) -> str:
        form = {"name": name, "password": DEMO_PASSWORD}
        answer = await self.ask("sign in", self.any_service(), "POST", "/api/session", json=form)
        if answer is None or not answer.ok:
            return ""
        return answer.headers["set-cookie"].partition(";")[0]

    async def _finalize(self) -> None:
        """The referee corrects a result."""
        result = self.chance.choice(list(self.results.values()))
        result.written += 1
        number = result.written
        path = f"/api/admin/matches/{result.match_id}/finalize"
        form = {**Result.score(number), "override": True}  # these matches are weeks ahead
        answer = await self._ask_as_referee("finalize", path, form)
        if answer is not None and answer.ok:
            result.acknowledged, result.at, result.by = number, answer.ended, answer.member.name
        await self.rest(0.7)

    async def _book(self) -> None:
        """The referee books a player, and sends it again without an answer, or for no reason."""
        player = f"Player {len(self.booked) + 1}"
        self.booked[player] = False
        card = {"kind": "card", "side": self.chance.choice(["home", "away"]), "player": player}
        form = {"id": str(uuid4()), "seen": _ANY_REVISION, **card}
        path = f"/api/admin/matches/{self._live_match}/actions"
        for _ in range(3):
            answer = await self._ask_as_referee("book", path, form)
            if answer is not None and answer.ok:
                self.booked[player] = True
                if self.chance.random() < 0.7:
                    break
            await self.rest(0.3)
        await self.rest(2.0)

    async def _ask_as_referee(self, what: str, path: str, form: Mapping[str, object]) -> Answer | None:
        if not self._referee:
            self._referee = await self._sign_in(DEMO_ADMINISTRATOR)
        headers = {"cookie": self._referee}
        answer = await self.ask(what, self.any_service(), "POST", path, json=form, headers=headers)
        if answer is not None and answer.status in (401, 403):
            self._referee = ""
        return answer

    async def _poll(self) -> None:
        """A reader polls with the tag they have."""
        path = self.chance.choice([_RESULTS, _RESULTS, _TABLE])
        member = self.any_service()
        known = self._known.get((member.name, path))
        least = {each.match_id: (each.acknowledged, each.at, each.by) for each in self.results.values()}
        headers = {"if-none-match": known} if known and self.chance.random() < 0.7 else {}
        answer = await self.ask("poll", member, "GET", path, headers=headers)
        if answer is not None and answer.status in (200, 304):
            body = self._body(path, answer, known)
            self._known[member.name, path] = answer.headers["etag"]
            if path == _RESULTS:
                self._judge(body, answer, least)
        await self.rest(0.12)

    def _body(self, path: str, answer: Answer, known: str | None) -> bytes:
        """The content of an answer, which must be what its tag has always stood for."""
        tag = answer.headers["etag"]
        if answer.status == 304:
            self.ledger.expect(
                tag == known, self.system, "304 is said of what the client has", f"{tag} {known}"
            )
            return self.tags[path, known or tag]
        before = self.tags.setdefault((path, tag), answer.content)
        self.ledger.expect(
            before == answer.content, self.system, "a tag stands for one content", f"{path} {tag}"
        )
        return answer.content

    def _judge(self, body: bytes, answer: Answer, least: dict[int, tuple[int, float, str]]) -> None:
        import msgspec

        shown = {each["id"]: Result.number(each["score"]) for each in msgspec.json.decode(body)}
        for match_id, (number, at, by) in least.items():
            if not number or shown.get(match_id, 0) >= number:
                continue
            soon = answer.member.name != by and answer.began - at < _SOON
            parts = ("cache", answer.member.name, f"stall:{answer.member.name}")
            if soon or self.timeline.disturbed(parts, at - 1, answer.ended):
                self.excuse(
                    "a result was stale while the cache was down or its process hung, or briefly elsewhere"
                )
                continue
            detail = (
                f"{answer.member.name} showed {shown.get(match_id)} of match {match_id} "
                f"{answer.began - at:.2f} s after {by} had acknowledged {number}"
            )
            self.ledger.expect(False, self.system, "a result is seen once it is acknowledged", detail)
        self.ledger.expect(True, self.system, "a result is seen once it is acknowledged")

    async def _see_last(self, result: Result) -> None:
        """Check that all processes show what SQL has, and that it is at least what was acknowledged."""
        ((home, away),) = self.rows(
            "SELECT home_goals, away_goals FROM league.matches WHERE id = %s", result.match_id
        )
        number = Result.number([home, away])
        self.ledger.expect(
            result.acknowledged <= number <= result.written,
            self.system,
            "a result that was acknowledged is in SQL",
            f"{result.match_id}: {number}, acknowledged {result.acknowledged}, written {result.written}",
        )

    async def _hurry(self) -> None:
        """Poll a live route too often."""
        path = f"/api/matches/{self._matches[0]}/versions"
        answer = await self.ask("hurry", self.any_service(), "GET", path, address=self._hasty)
        if answer is not None and answer.status in (200, 202, 304) and "ratelimit" in answer.headers:
            self.live.admit(self._hasty, Admitted(answer.began, answer.ended))
        await self.rest(0.35)

    async def _return(self) -> None:
        """Try the cookie of an ended session."""
        if self.ended:
            await self._come_back(self.chance.choice(self.ended[-50:]), self.any_service())
        await self.rest(0.5)

    async def _come_back(self, cookie: str, member: Member) -> None:
        answer = await self.ask("ended session", member, "GET", "/api/me", headers={"cookie": cookie})
        if answer is not None:
            self.ledger.expect(
                answer.status != 200, self.system, "a session that was ended is refused", member.name
            )
