"""A user who changes their password again and again: the last one works, and no earlier one does.

Guaranteed: once a change is acknowledged, the new password signs in and no earlier one does, whatever happens
to Redis; all sign-ins but the one that made the change are ended. After a change without an answer another
user goes on, because either password may be the right one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from tests.chaos.campaign.load.service_load import Answer, Load
from tests.chaos.campaign.processes import Member

_REMEMBERED = 100  # passwords that are tried again
_Ended = Callable[[str, dict[str, Any], Member, Answer], None]


class PasswordChanges:
    """Users who change their passwords, one after the other."""

    def __init__(self, load: Load, ended: _Ended) -> None:
        self._load = load
        self._ended = ended
        """Is called with the user's id and the tokens of a sign-in that a change has ended."""
        self._email = self._password = ""
        self.replaced: list[tuple[str, str]] = []
        """Addresses and passwords that do not sign in any more."""

    async def change(self, register: Callable[[str, str], Awaitable[bool]]) -> None:
        """Sign in twice, change the password, and try the earlier and the new one."""
        if not self._email:
            email, password = f"{uuid4().hex}@example.com", _fresh()
            if not await register(email, password):
                return
            self._email, self._password = email, password
        mine, other = await self._sign_in(), await self._sign_in()
        if mine is None or other is None:
            return
        fresh, member = _fresh(), self._load.any_service()
        form = {"current_password": self._password, "new_password": fresh}
        bearer = {"authorization": f"Bearer {mine['access_token']}"}
        answer = await self._load.ask(
            "change password", member, "POST", "/auth/password", json=form, headers=bearer
        )
        if answer is None or answer.status >= 500:
            self._email = ""
            return
        if answer.ok:
            self.replaced.append((self._email, self._password))
            self._password = fresh
            self._ended(str(mine["user_id"]), other, member, answer)
            await self.try_replaced(*self.replaced[-1], self._load.any_service())
            await self._sign_in()

    async def try_replaced(self, email: str, password: str, member: Member) -> None:
        """Sign in with a password that was replaced."""
        answer = await self._load.ask(
            "replaced password", member, "POST", "/auth/login", json={"email": email, "password": password}
        )
        if answer is not None:
            self._load.ledger.expect(
                not answer.ok, self._load.system, "a replaced password is refused", member.name
            )

    async def check(self) -> None:
        """Try the last password, and all earlier ones at every process."""
        await self._sign_in()
        for email, password in self.replaced[-_REMEMBERED:]:
            for member in self._load.services:
                await self.try_replaced(email, password, member)

    async def _sign_in(self) -> dict[str, Any] | None:
        """Sign in with the current password, which must not be refused."""
        if not self._email:
            return None
        form = {"email": self._email, "password": self._password}
        member = self._load.any_service()
        answer = await self._load.ask("login", member, "POST", "/auth/login", json=form)
        if answer is None:
            return None
        self._load.ledger.expect(
            answer.status != 401, self._load.system, "the last password signs in", member.name
        )
        return dict(answer.json()) if answer.ok else None


def _fresh() -> str:
    return f"correct horse {uuid4().hex}"
