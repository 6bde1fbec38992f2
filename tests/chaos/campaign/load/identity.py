"""Identity under load: revoked credentials stay invalid, accounts persist, and password guessing is limited.

Guaranteed, and checked here:

- a refresh token of an ended sign-in is never accepted again, whatever happens to Redis: SQL has it;
- an access token is refused on every process once its revocation is acknowledged, whether the queue is
  available or not: SQL is asked then. Excused, as documented: if the acknowledgement fell into the last
  second of a queue's master that died, until the process that made it has written it again, and permanently
  only if that process died, too;
- at most 5 sign-ins per hour from an address, in periods in which the queue was undisturbed;
- a profile read after an update shows it: at once on the process that made it, soon on others, always in the
  end;
- the last password signs in, and no earlier one does: `password_changes`;
- a document that was stored can be read until it is deleted, and not afterwards: `stored_documents`;
- an account that was created exists, and one whose deletion was acknowledged does not.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import uuid4

from tests.chaos.campaign.load.limits import Admitted, LimitBook
from tests.chaos.campaign.load.password_changes import PasswordChanges
from tests.chaos.campaign.load.service_load import Answer, Load
from tests.chaos.campaign.load.stored_documents import StoredDocuments
from tests.chaos.campaign.processes import Member
from tests.services.identity_users import RESOURCE_SERVER

PASSWORD = "correct horse battery"
ADMIN = {"email": "root@example.com", "password": "the administrator's own"}
LOGINS = 5
_HOUR = 3600.0
_ATTEMPTS = 14  # from one address, before another one is taken
_REMEMBERED = 400  # tokens that are tried again
_SOON = 1.5  # seconds in which the server's word reaches another process
_PEOPLE = 3  # who act side by side


class Revoked(NamedTuple):
    """Tokens whose revocation was acknowledged: by which process, when, and how."""

    access: tuple[str, ...]
    refresh: str
    user_id: str
    by: Member
    instance: float
    at: float
    how: str


class Person:
    """A user with an account, and the expected contents of their profile."""

    def __init__(self, email: str, user_id: str) -> None:
        self.email = email
        self.id = user_id
        self.written = 0  # the last number that was sent as a first name
        self.acknowledged = 0
        self.at = 0.0
        self.by: Member | None = None


class IdentityLoad(Load):
    """Users who sign in and out, attackers with revoked tokens, and password guessers."""

    system = "identity"

    def staff(self) -> list[Member]:
        """Return two processes: what one revokes, the other must refuse."""
        plenty = {
            f"EPHEMERA_IDENTITY_{name}_PER_HOUR": "1000000"
            for name in (
                "REGISTRATIONS",
                "ALL_REGISTRATIONS",
                "WRONG_PASSWORDS",
                "REFRESHES",
                "ADDRESS_REFRESHES",
                "REVOCATION_LISTS",
                "PROFILE_READS",
                "PROFILE_UPDATES",
                "UPLOADS",
                "DOCUMENT_READS",
                "MAILS",
                "CONFIRMATIONS",
            )
        }
        environment = {
            "EPHEMERA_IDENTITY_PASSWORD_MEMORY": "8",
            "EPHEMERA_IDENTITY_KEY_PASSWORD": "of the campaign",
            "EPHEMERA_IDENTITY_ADMIN_EMAIL": ADMIN["email"],
            "EPHEMERA_IDENTITY_ADMIN_PASSWORD": ADMIN["password"],
            "EPHEMERA_IDENTITY_LOGINS_PER_HOUR": str(LOGINS),
            "EPHEMERA_IDENTITY_INTROSPECTION_TOKENS": RESOURCE_SERVER,
            **plenty,
        }
        return [self.member(place, "serve", "identity", **environment) for place in (0, 1)]

    async def prepare(self) -> None:
        """Create users, and the books of limits."""
        self.registered: list[str] = []
        self.deleted: list[str] = []
        self.revoked: deque[Revoked] = deque(maxlen=_REMEMBERED)
        self.logins = LimitBook(self.ledger, self.system, "sign-ins from an address", LOGINS, _HOUR)
        self._guesser, self._guesses = self.any_address(), 0
        self._admin, self._admin_until = "", 0.0
        self.passwords = PasswordChanges(self, self._ended_by_password)
        self.documents, self._author = StoredDocuments(self, self._sign_in_author), ""
        self.people = [await self._newcomer() for _ in range(_PEOPLE)]
        self._free = list(self.people)

    def actors(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the actors."""
        attackers = [self._steal, self._steal, self._guess]
        users = [self._register, self._leave, self._change_password, self.documents.act]
        return [*[self._live] * _PEOPLE, *attackers, *users]

    async def settle(self) -> None:
        """Unblock everyone, and wait for caches, which may get the last updates late."""
        for person in self.people:
            for _ in range(100):
                if await self._unblock(person):
                    break
                await asyncio.sleep(0.5)
        for person in self.people:
            await self.eventually("the last profile update is seen everywhere", self._stale(person))

    async def check(self) -> None:
        """Try every revoked token on every process, and check accounts and limits."""
        for revoked in list(self.revoked):
            for member in self.services:
                await self._try_access(revoked, member)
            await self._try_refresh(revoked, self.any_service())
        found = [email for (email,) in self.rows("SELECT email FROM identity.users")]
        for email in self.registered:
            self.ledger.expect(
                found.count(email) == 1, self.system, "an account that was made is there", email
            )
        for email in self.deleted:
            self.ledger.expect(email not in found, self.system, "an account that was deleted is gone", email)
        self.logins.check()
        await self.passwords.check()
        await self.documents.check()

    async def _newcomer(self) -> Person:
        email = f"{uuid4().hex}@example.com"
        form = {"email": email, "password": PASSWORD, "first_name": "0", "last_name": "Tester"}
        await self.request_until_ok("register", "POST", "/auth/register", json=form)
        self.registered.append(email)
        (found,) = self.rows("SELECT id FROM identity.users WHERE email = %s", email)
        return Person(email, str(found[0]))

    async def _register(self) -> None:
        email = f"{uuid4().hex}@example.com"
        if await self._registers(email, PASSWORD):
            self.registered.append(email)
        await self.rest(2.0)

    async def _registers(self, email: str, password: str) -> bool:
        form = {"email": email, "password": password, "first_name": "A", "last_name": "B"}
        answer = await self.ask("register", self.any_service(), "POST", "/auth/register", json=form)
        return answer is not None and answer.ok

    async def _change_password(self) -> None:
        await self.passwords.change(self._registers)
        await self.rest(1.5)

    async def _sign_in_author(self) -> dict[str, str] | None:
        """Sign in the user who stores documents, after their registration."""
        email = self._author or f"{uuid4().hex}@example.com"
        if not self._author and not await self._registers(email, PASSWORD):
            return None
        self._author = email
        form = {"email": email, "password": PASSWORD}
        answer = await self.ask("login", self.any_service(), "POST", "/auth/login", json=form)
        if answer is None or not answer.ok:
            return None
        return {"authorization": f"Bearer {answer.json()['access_token']}"}

    def _ended_by_password(
        self, user_id: str, tokens: dict[str, str], member: Member, answer: Answer
    ) -> None:
        self._record(user_id, [tokens["access_token"]], tokens, member, answer, "change of password")

    async def _leave(self) -> None:
        """A new user signs in and deletes the account; what is not acknowledged is not judged."""
        email = f"{uuid4().hex}@example.com"
        await self._registers(email, PASSWORD)
        form = {"email": email, "password": PASSWORD}
        answer = await self.ask("login", self.any_service(), "POST", "/auth/login", json=form)
        if answer is not None and answer.ok:
            tokens, member = answer.json(), self.any_service()
            person = Person(email, tokens["user_id"])
            bearer = {"authorization": f"Bearer {tokens['access_token']}"}
            path, form = "/auth/account/delete", {"password": PASSWORD}
            answer = await self.ask("delete account", member, "POST", path, json=form, headers=bearer)
            if answer is not None and answer.ok:
                self.deleted.append(person.email)
                self._record(person.id, [tokens["access_token"]], tokens, member, answer, "deletion")
        await self.rest(2.0)

    async def _live(self) -> None:
        """One sign-in of an idle user, from its beginning to its acknowledged end."""
        person = self._free.pop(0)
        try:
            await self._sign_in_and_out(person)
        finally:
            self._free.append(person)
        await self.rest(0.2)

    async def _sign_in_and_out(self, person: Person) -> None:
        form = {"email": person.email, "password": PASSWORD}
        answer = await self.ask("login", self.any_service(), "POST", "/auth/login", json=form)
        if answer is not None and answer.status == 403:
            await self._unblock(person)
        if answer is None or not answer.ok:
            return
        tokens = answer.json()
        access = [tokens["access_token"]]
        for _ in range(self.chance.randrange(3)):
            await self._use_profile(person, access[-1])
            await self.rest(0.1)
        if self.chance.random() < 0.5:
            body = {"refresh_token": tokens["refresh_token"]}
            renewed = await self.ask("refresh", self.any_service(), "POST", "/auth/refresh", json=body)
            if renewed is not None and renewed.ok:
                tokens = renewed.json()
                access.append(tokens["access_token"])
            elif renewed is None or renewed.status != 503:
                return  # used up or not: unknown
        await self._end(person, access, tokens)

    async def _unblock(self, person: Person) -> bool:
        path = f"/admin/users/{person.id}/block"
        answer = await self.ask("unblock", self.any_service(), "DELETE", path, headers=await self._as_admin())
        return answer is not None and answer.ok

    async def _use_profile(self, person: Person, token: str) -> None:
        bearer = {"authorization": f"Bearer {token}"}
        path = f"/api/profiles/{person.id}"
        if self.chance.random() < 0.4:
            person.written += 1
            number = person.written
            method, form = self.chance.choice(
                [
                    ("PUT", {"first_name": str(number), "last_name": "T"}),
                    ("PATCH", {"first_name": str(number)}),
                ]
            )
            answer = await self.ask(
                "profile update", self.any_service(), method, path, headers=bearer, json=form
            )
            if answer is not None and answer.ok:
                person.acknowledged, person.at, person.by = number, answer.ended, answer.member
        answer = await self.ask("profile read", self.any_service(), "GET", path, headers=bearer)
        if answer is not None and answer.ok:
            self._judge_profile(person, answer)

    def _judge_profile(self, person: Person, answer: Answer) -> None:
        """Only one actor changes this user, so what was acknowledged before the read is the least."""
        seen = int(answer.json()["first_name"])
        if seen >= person.acknowledged:
            self.ledger.expect(True, self.system, "a profile read has the last update")
            return
        soon = answer.member is not person.by and answer.began - person.at < _SOON
        both = [member for member in (answer.member, person.by) if member is not None]
        parts = ("cache", *(name for each in both for name in (each.name, f"stall:{each.name}")))
        if soon or self.timeline.disturbed(parts, person.at - 1, answer.ended):
            self.excuse("a profile was stale while its cache was down, or briefly on another process")
            return
        detail = f"{answer.member.name} said {seen}, {person.acknowledged} was acknowledged"
        self.ledger.expect(False, self.system, "a profile read has the last update", detail)

    async def _end(self, person: Person, access: list[str], tokens: dict[str, str]) -> None:
        """End the sign-in in one of the ways there are, until it is acknowledged."""
        how = self.chance.choice(
            ["logout", "end session", "revoke token", "revoke all", "role change", "block"]
        )
        bearer = {"authorization": f"Bearer {access[-1]}"}
        for _ in range(8):
            member = self.any_service()
            match how:
                case "logout":
                    answer = await self.ask(how, member, "POST", "/auth/logout", headers=bearer)
                case "end session":
                    path = f"/auth/sessions/{tokens['sid']}"
                    answer = await self.ask(how, member, "DELETE", path, headers=bearer)
                case "revoke token":
                    form = {"token": tokens["refresh_token"]}
                    answer = await self.ask(how, member, "POST", "/auth/revoke", data=form)
                case "block":
                    path = f"/admin/users/{person.id}/block"
                    answer = await self.ask(how, member, "PUT", path, headers=await self._as_admin())
                case "revoke all":
                    path = f"/admin/users/{person.id}/sessions"
                    answer = await self.ask(how, member, "DELETE", path, headers=await self._as_admin())
                case _:
                    path, form = f"/admin/users/{person.id}/role", {"role": "user"}
                    answer = await self.ask(
                        how, member, "PUT", path, json=form, headers=await self._as_admin()
                    )
            if answer is not None and answer.ok:
                self._record(person.id, access, tokens, member, answer, how)
                return
            await self.rest(0.5)

    def _record(
        self,
        user_id: str,
        access: list[str],
        tokens: dict[str, str],
        member: Member,
        answer: Answer,
        how: str,
    ) -> None:
        """Remember tokens whose revocation was acknowledged, to try them again."""
        refresh = tokens["refresh_token"]
        self.revoked.append(
            Revoked(tuple(access), refresh, user_id, member, answer.instance, answer.ended, how)
        )

    async def _as_admin(self) -> dict[str, str]:
        if time.monotonic() > self._admin_until:
            answer = await self.ask("login", self.any_service(), "POST", "/auth/login", json=ADMIN)
            if answer is not None and answer.ok:
                self._admin = answer.json()["access_token"]
                self._admin_until = time.monotonic() + 300
        return {"authorization": f"Bearer {self._admin}"}

    async def _steal(self) -> None:
        """Try a revoked token, mostly a recent one."""
        if self.revoked:
            recent = self.chance.random() < 0.7
            place = -1 - self.chance.randrange(min(4, len(self.revoked))) if recent else 0
            found = self.revoked[place] if recent else self.chance.choice(list(self.revoked))
            if self.chance.random() < 0.8:
                await self._try_access(found, self.any_service())
            else:
                await self._try_refresh(found, self.any_service())
        await self.rest(0.15)

    async def _try_access(self, revoked: Revoked, member: Member) -> None:
        token = self.chance.choice(revoked.access)
        bearer = {"authorization": f"Bearer {token}"}
        path = f"/api/profiles/{revoked.user_id}"
        if self.chance.random() < 0.3:
            answer = await self._introspect(token, member)
            accepted = answer is not None and answer.ok and answer.json()["active"]
        else:
            answer = await self.ask("stolen access token", member, "GET", path, headers=bearer)
            accepted = answer is not None and answer.status == 200
        if answer is None:
            return
        if not accepted:
            self.ledger.expect(True, self.system, "a revoked access token is refused")
            return
        unwritten = revoked.by.started_at != revoked.instance or self.may_be_cut_off(
            "queue", revoked.by, answer.began, answer.ended
        )
        if unwritten and self.lost_in_a_crash(revoked.at):
            self.excuse("a revocation was lost with the queue's master, which died within a second of it")
        else:
            ago = f"{answer.began - revoked.at:.2f} s after its {revoked.how} at {revoked.by.name}"
            ago += f", {answer.began - answer.instance:.1f} s after its own start"
            self.ledger.expect(
                False, self.system, "a revoked access token is refused", f"{member.name} took one, {ago}"
            )

    async def _introspect(self, token: str, member: Member) -> Answer | None:
        """Ask as another service whether a token is active."""
        bearer = {"authorization": f"Bearer {RESOURCE_SERVER}"}
        return await self.ask(
            "introspection", member, "POST", "/auth/introspect", data={"token": token}, headers=bearer
        )

    async def _try_refresh(self, revoked: Revoked, member: Member) -> None:
        body = {"refresh_token": revoked.refresh}
        answer = await self.ask("stolen refresh token", member, "POST", "/auth/refresh", json=body)
        if answer is not None:
            detail = f"{member.name} took one after its {revoked.how} at {revoked.by.name}"
            self.ledger.expect(
                answer.status != 200, self.system, "a revoked refresh token is refused", detail
            )

    async def _guess(self) -> None:
        """One attempt with a wrong password; a new address after some."""
        if self._guesses >= _ATTEMPTS:
            self._guesser, self._guesses = self.any_address(), 0
        self._guesses += 1
        form = {"email": self.people[0].email, "password": "a wrong guess"}
        address, hour = self._guesser, int(time.time() // _HOUR)
        answer = await self.ask(
            "guess", self.any_service(), "POST", "/auth/login", json=form, address=address
        )
        if answer is not None and answer.status in (200, 401):
            hours = (hour, int(time.time() // _HOUR))
            self.logins.admit(address, Admitted(answer.began, answer.ended, hours))
        await self.rest(0.25)

    def _stale(self, person: Person) -> Callable[[], str]:
        """What is not up to date of a person, by SQL and by each process's cache."""

        def missing() -> str:
            (found,) = self.rows("SELECT first_name FROM identity.users WHERE id = %s", person.id)
            number = int(found[0])
            if person.acknowledged <= number <= person.written:
                return ""
            return f"SQL has {number}, {person.acknowledged} was acknowledged"

        return missing
