"""An editor of slides who creates and revokes API keys: those that were revoked never work again.

Guaranteed: a key works at every process once its creation is acknowledged, and never again once its
revocation is, whatever happens to Redis: SQL is asked for each request. A revocation without an answer may be
done or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.chaos.campaign.load.service_load import Answer, Load
from tests.chaos.campaign.processes import Member

_REMEMBERED = 50  # revoked keys that are tried again


class AccessKeys:
    """The API keys of one user, one at a time."""

    def __init__(self, load: Load, headers: Callable[[], Awaitable[dict[str, str]]]) -> None:
        self._load = load
        self._headers = headers
        self.revoked: list[str] = []

    async def act(self) -> None:
        """Create a key, use it, revoke it, and try one that was revoked."""
        load = self._load
        form = {"name": "campaign", "days": 1}
        made = await self._ask("create key", "POST", "/api-keys", form)
        if made is not None and made.ok:
            key, member = str(made.json()["key"]), load.any_service()
            used = await self._use(key, member)
            if used is not None:
                self._expect(used.status != 401, "a key that was created works", member)
            ended = await self._ask("revoke key", "DELETE", f"/api-keys/{made.json()['api_key_id']}")
            if ended is not None and ended.ok:
                self.revoked.append(key)
                await self.come_back(key, load.any_service())
        elif made is not None and made.status == 409:
            await self._revoke_all()
        if self.revoked:
            await self.come_back(load.chance.choice(self.revoked[-_REMEMBERED:]), load.any_service())
        await load.rest(1.5)

    async def check(self) -> None:
        """Try revoked keys at every process."""
        for key in self.revoked[-_REMEMBERED:]:
            for member in self._load.services:
                await self.come_back(key, member)

    async def come_back(self, key: str, member: Member) -> None:
        """Use a key that was revoked."""
        answer = await self._use(key, member)
        if answer is not None:
            self._expect(not answer.ok, "a revoked key is refused", member)

    async def _revoke_all(self) -> None:
        """Make room: revocations without an answer were not done."""
        listed = await self._ask("list keys", "GET", "/api-keys")
        for key in listed.json()["keys"] if listed is not None and listed.ok else ():
            await self._ask("revoke key", "DELETE", f"/api-keys/{key['api_key_id']}")

    async def _use(self, key: str, member: Member) -> Answer | None:
        return await self._load.ask("use key", member, "GET", "/usage", headers={"x-api-key": key})

    def _expect(self, condition: bool, guarantee: str, member: Member) -> None:
        self._load.ledger.expect(condition, self._load.system, guarantee, member.name)

    async def _ask(self, what: str, method: str, path: str, body: object = None) -> Answer | None:
        load = self._load
        return await load.ask(
            what, load.any_service(), method, path, headers=await self._headers(), json=body
        )
