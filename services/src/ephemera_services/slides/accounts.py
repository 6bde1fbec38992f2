"""Users, their roles and their API keys. SQL decides; a change ends the user's sessions in Redis.

A sign-in is announced before the account is read, so no session with an old role can be created after the
revocation. A key is 256 random bits; SQL has only its digest, so a dump grants no access.
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
from ephemera.web import RequestSession
from ephemera_services.runtime import Passwords, problem
from ephemera_services.slides.keys import SESSIONS, CachedSession
from ephemera_services.slides.redis_retry import RetryQueue
from ephemera_services.slides.tables import api_keys, organizations, users

RoleName = Literal["admin", "editor", "viewer"]

_KEY_PREFIX = "sk_"


class Account(NamedTuple):
    """A user with their role and organization."""

    id: UUID
    organization_id: UUID
    email: str
    role: str
    blocked: bool
    plan: str


class Accounts:
    """The users of the service."""

    def __init__(self, engine: AsyncEngine, store: Store, passwords: Passwords, retries: RetryQueue) -> None:
        self._engine = engine
        self._sessions = store[SESSIONS]
        self._passwords = passwords
        self._retries = retries

    async def add_organization(self, name: str, plan: str = "free") -> UUID:
        """Create an organization; its id."""
        organization_id = uuid4()
        async with self._engine.begin() as sql:
            await sql.execute(insert(organizations).values(id=organization_id, name=name, plan=plan))
        return organization_id

    async def add(self, organization_id: UUID, email: str, password: str, role: RoleName) -> UUID:
        """Create a user; the id, or 409 if the address is taken."""
        row = {"id": uuid4(), "organization_id": organization_id, "email": email, "role": role}
        password_hash = await self._passwords.hash(password)
        try:
            async with self._engine.begin() as sql:
                await sql.execute(insert(users).values(**row, password_hash=password_hash))
        except IntegrityError:
            raise problem(409, "An account with this address already exists.") from None
        return row["id"]  # type: ignore[return-value]

    async def id_of(self, email: str) -> UUID | None:
        """The id of the user with an address."""
        async with self._engine.connect() as sql:
            found = await sql.execute(select(users.c.id).where(func.lower(users.c.email) == email.lower()))
            return found.scalar_one_or_none()

    async def sign_in(
        self, email: str, password: str, ip: str, handle: RequestSession[CachedSession]
    ) -> Account | None:
        """Start a session; None if the password is wrong, 403 if the user is blocked."""
        wanted = select(users.c.id, users.c.password_hash).where(func.lower(users.c.email) == email.lower())
        async with self._engine.connect() as sql:
            known = (await sql.execute(wanted)).one_or_none()
        matches = await self._passwords.verify(password, None if known is None else known.password_hash)
        if known is None or not matches:
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
            raise problem(409, "Your account was just changed; sign in again.") from None
        return account

    async def by_key(self, key: str) -> tuple[str, Account] | None:
        """The id and the owner of an API key; None if it is not valid."""
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
        """Create an API key: its id, and the key itself, which cannot be read again."""
        key_id, key = uuid4(), _KEY_PREFIX + secrets.token_urlsafe(32)
        async with self._engine.begin() as sql:
            await sql.execute(
                insert(api_keys).values(id=key_id, user_id=user_id, name=name, digest=_digest(key))
            )
        return key_id, key

    async def change(self, user_id: UUID, organization_id: UUID, **values: Any) -> int:
        """Change a user's role, or block them, and end all their sessions; the number of sessions."""
        c = users.c
        changed = update(users).where(c.id == user_id, c.organization_id == organization_id).values(**values)
        async with self._engine.begin() as sql:
            if not (await sql.execute(changed)).rowcount:
                raise problem(404, "There is no such user in your organization.")
        return await self._retries.run(lambda: self._sessions.end_all(str(user_id)))

    async def _read(self, where: Any) -> Account | None:
        c = users.c
        wanted = select(c.id, c.organization_id, c.email, c.role, c.blocked, organizations.c.plan)
        joined = wanted.join(organizations, organizations.c.id == c.organization_id).where(where)
        async with self._engine.connect() as sql:
            row = (await sql.execute(joined)).one_or_none()
        return None if row is None else Account(*row)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
