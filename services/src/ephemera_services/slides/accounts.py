"""Users, their roles and their API keys. SQL decides; sessions in Redis are copies that a change ends.

A sign-in is announced before the account is read, so a session with an old role cannot come after the
revocation. A key is 256 random bits; SQL has its digest alone, so a dump opens nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.errors import SessionsRevoked
from ephemera.web._sessions import RequestSession
from ephemera_services.runtime import Passwords, problem
from ephemera_services.slides.keys import SESSIONS, CachedSession
from ephemera_services.slides.redis_retry import Repeater
from ephemera_services.slides.tables import api_keys, organizations, users

RoleName = Literal["admin", "editor", "viewer"]

_KEY_PREFIX = "sk_"


class Account(NamedTuple):
    """Who may do what, where."""

    id: UUID
    organization_id: UUID
    email: str
    role: str
    blocked: bool
    plan: str


class Accounts:
    """The users of the service."""

    def __init__(self, engine: AsyncEngine, store: Store, passwords: Passwords, repeater: Repeater) -> None:
        self._engine = engine
        self._sessions = store[SESSIONS]
        self._passwords = passwords
        self._repeater = repeater

    async def add_organization(self, name: str, plan: str = "free") -> UUID:
        """A new organization's id."""
        organization_id = uuid4()
        async with self._engine.begin() as sql:
            await sql.execute(insert(organizations).values(id=organization_id, name=name, plan=plan))
        return organization_id

    async def add(self, organization_id: UUID, email: str, password: str, role: RoleName) -> UUID:
        """A new user's id; 409 when the address is taken."""
        row = {"id": uuid4(), "organization_id": organization_id, "email": email, "role": role}
        kept = await self._passwords.hash(password)
        try:
            async with self._engine.begin() as sql:
                await sql.execute(insert(users).values(**row, password_hash=kept))
        except IntegrityError:
            raise problem(409, "There is an account with this address already.") from None
        return row["id"]  # type: ignore[return-value]

    async def id_of(self, email: str) -> UUID | None:
        """The user with an address."""
        async with self._engine.connect() as sql:
            found = await sql.execute(select(users.c.id).where(func.lower(users.c.email) == email.lower()))
            return found.scalar_one_or_none()

    async def sign_in(
        self, email: str, password: str, ip: str, handle: RequestSession[CachedSession]
    ) -> Account | None:
        """Start a session for who knows the password; None when nobody does, 403 when they are blocked."""
        wanted = select(users.c.id, users.c.password_hash).where(func.lower(users.c.email) == email.lower())
        async with self._engine.connect() as sql:
            known = (await sql.execute(wanted)).one_or_none()
        right = await self._passwords.verify(password, None if known is None else known.password_hash)
        if known is None or not right:
            return None
        sign_in = await handle.begin_sign_in(str(known.id))
        account = await self._read(users.c.id == known.id)
        if account is None or account.blocked:
            raise problem(403, "This account is blocked.")
        now = datetime.now(UTC)
        session = CachedSession(
            user_id=str(account.id),
            organization_id=str(account.organization_id),
            role=account.role,
            email=account.email,
            plan=account.plan,
            created_at=now,
            last_active=now,
            ip=ip,
        )
        try:
            await handle.start(session, sign_in=sign_in)
        except SessionsRevoked:
            raise problem(409, "Your rights were just changed; sign in again.") from None
        return account

    async def by_key(self, key: str) -> tuple[str, Account] | None:
        """The id of an API key and whose it is, by SQL; None for what is no key."""
        if not key.startswith(_KEY_PREFIX):
            return None
        wanted = select(api_keys.c.id, api_keys.c.user_id).where(api_keys.c.digest == _digest(key))
        async with self._engine.connect() as sql:
            row = (await sql.execute(wanted)).one_or_none()
        account = None if row is None else await self._read(users.c.id == row.user_id)
        if row is None or account is None or account.blocked:
            return None
        return str(row.id), account

    async def make_key(self, user_id: UUID, name: str) -> tuple[UUID, str]:
        """A new API key: its id, and the key itself, which nobody can read again."""
        key_id, key = uuid4(), _KEY_PREFIX + secrets.token_urlsafe(32)
        async with self._engine.begin() as sql:
            await sql.execute(
                insert(api_keys).values(id=key_id, user_id=user_id, name=name, digest=_digest(key))
            )
        return key_id, key

    async def change(self, user_id: UUID, organization_id: UUID, **values: Any) -> int:
        """Change a user's role, or block them, and end all their sessions; how many those were."""
        c = users.c
        changed = update(users).where(c.id == user_id, c.organization_id == organization_id).values(**values)
        async with self._engine.begin() as sql:
            if not (await sql.execute(changed)).rowcount:
                raise problem(404, "There is no such user in your organization.")
        return await self._repeater.until_done(lambda: self._sessions.end_all(str(user_id)))

    async def _read(self, where: Any) -> Account | None:
        c = users.c
        wanted = select(c.id, c.organization_id, c.email, c.role, c.blocked, organizations.c.plan)
        joined = wanted.join(organizations, organizations.c.id == c.organization_id).where(where)
        async with self._engine.connect() as sql:
            row = (await sql.execute(joined)).one_or_none()
        return None if row is None else Account(*row)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
