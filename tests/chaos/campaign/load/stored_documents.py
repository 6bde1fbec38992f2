"""A user of identity who stores and deletes documents: what was acknowledged is listed, or is gone.

Guaranteed: a document whose upload was acknowledged can be read at every process until its deletion is
acknowledged, and not afterwards, whatever happens to Redis. A deletion without an answer may be done or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from uuid import uuid4

from tests.chaos.campaign.load.service_load import Answer, Load
from tests.chaos.campaign.processes import Member

_KEPT = 5  # documents, before one is deleted
_REMEMBERED = 50  # deleted documents that are tried again
_PATH = "/api/documents"
_SignIn = Callable[[], Awaitable[dict[str, str] | None]]


class StoredDocuments:
    """The documents of one user."""

    def __init__(self, load: Load, sign_in: _SignIn) -> None:
        self._load = load
        self._sign_in = sign_in
        """Returns the header of a new sign-in of the user, or None."""
        self._headers: dict[str, str] | None = None
        self.kept: dict[str, str] = {}
        """The digest of each document, by its id."""
        self.deleted: list[str] = []

    async def act(self) -> None:
        """Upload a document, or delete one of several, and read one and one that was deleted."""
        load = self._load
        if len(self.kept) < _KEPT:
            content = uuid4().hex.encode()
            stored = await self._ask("upload", "POST", f"{_PATH}/upload", files={"file": ("a.txt", content)})
            if stored is not None and stored.ok:
                self.kept[str(stored.json()["document_id"])] = hashlib.sha256(content).hexdigest()
        else:
            document_id = next(iter(self.kept))
            del self.kept[document_id]
            answer = await self._ask("delete document", "DELETE", f"{_PATH}/{document_id}")
            if answer is not None and answer.ok:
                self.deleted.append(document_id)
        if self.kept:
            await self._read(load.chance.choice(list(self.kept)), load.any_service())
        if self.deleted:
            await self._read_deleted(load.chance.choice(self.deleted[-_REMEMBERED:]), load.any_service())
        await load.rest(1.0)

    async def check(self) -> None:
        """Read all documents, and those that were deleted, at every process."""
        self._headers = None
        for member in self._load.services:
            for document_id in self.kept:
                await self._read(document_id, member)
            for document_id in self.deleted[-_REMEMBERED:]:
                await self._read_deleted(document_id, member)

    async def _read(self, document_id: str, member: Member) -> None:
        answer = await self._ask("read document", "GET", f"{_PATH}/{document_id}", member)
        if answer is not None and (answer.ok or answer.status == 404):
            right = answer.ok and hashlib.sha256(answer.content).hexdigest() == self.kept[document_id]
            self._expect(right, "a document that was stored is there", member)

    async def _read_deleted(self, document_id: str, member: Member) -> None:
        answer = await self._ask("deleted document", "GET", f"{_PATH}/{document_id}", member)
        if answer is not None:
            self._expect(not answer.ok, "a document that was deleted is gone", member)

    def _expect(self, condition: bool, guarantee: str, member: Member) -> None:
        self._load.ledger.expect(condition, self._load.system, guarantee, member.name)

    async def _ask(
        self,
        what: str,
        method: str,
        path: str,
        member: Member | None = None,
        files: dict[str, tuple[str, bytes]] | None = None,
    ) -> Answer | None:
        if self._headers is None:
            self._headers = await self._sign_in()
        if self._headers is None:
            return None
        member = member or self._load.any_service()
        answer = await self._load.ask(what, member, method, path, headers=self._headers, files=files)
        if answer is not None and answer.status == 401:
            self._headers = None
        return answer
