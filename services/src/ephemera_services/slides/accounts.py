"""Users and their roles. SQL decides; a change ends the user's sessions in Redis, or when it is back.

An account is an address within an organization, and a sign-in names both. Another organization can have an
account with the same address: creating it reveals nothing, and takes nothing from anyone. A sign-in is
announced before the account is read, so no session with an old role can be created after the revocation. An
organization never loses its last administrator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID, uuid4

from pydantic import SecretStr
from sqlalchemy import ColumnElement, and_, delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import SessionsRevoked
from ephemera.web import RequestSession
from ephemera_services.runtime import Passwords, PendingSignOuts, problem
from ephemera_services.slides.keys import SESSIONS, CachedSession
from ephemera_services.slides.tables import (
    documents,
    exports,
    organizations,
    pending_sign_outs,
    presentations,
    users,
)

RoleName = Literal["admin", "editor", "viewer"]

_ADMIN: RoleName = "admin"


class Account(NamedTuple):
    """A user with their role and organization."""

    id: UUID
    organization_id: UUID
    email: str
    role: RoleName
    blocked: bool
    plan: str


class SignInFields(Protocol):
    """What a sign-in sends."""

    organization: str
    email: str
    password: SecretStr


class Accounts:
    """The users of the service."""

    def __init__(self, engine: AsyncEngine, store: Store, passwords: Passwords) -> None:
        self._engine = engine
        self._passwords = passwords
        self.sign_outs = PendingSignOuts(engine, pending_sign_outs, store[SESSIONS].end_all)

    async def add_organization(self, name: str, plan: str = "free") -> UUID:
        """Create an organization, if there is none with this name; its id."""
        row = {"id": uuid4(), "name": name, "plan": plan}
        query = select(organizations.c.id).where(func.lower(organizations.c.name) == name.lower())
        async with self._engine.begin() as sql:
            await sql.execute(upsert(organizations).values(row).on_conflict_do_nothing())
            found: UUID = (await sql.execute(query)).scalar_one()
        return found

    async def add(self, organization_id: UUID, email: str, password: str, role: RoleName) -> UUID:
        """Create a user; the id, or 409 if the organization has one with this address."""
        row = {"id": uuid4(), "organization_id": organization_id, "email": email, "role": role}
        password_hash = await self._passwords.hash(password)
        try:
            async with self._engine.begin() as sql:
                await sql.execute(insert(users).values(**row, password_hash=password_hash))
        except IntegrityError:
            raise problem(409, "Your organization has an account with this address.") from None
        return row["id"]  # type: ignore[return-value]

    async def id_of(self, organization: str, email: str) -> UUID | None:
        """The id of the user with an address in an organization."""
        async with self._engine.connect() as sql:
            found = await sql.execute(
                select(users.c.id).join(organizations).where(_named(organization, email))
            )
            return found.scalar_one_or_none()

    async def sign_in(
        self, form: SignInFields, ip: str, handle: RequestSession[CachedSession]
    ) -> Account | None:
        """Start a session; None if the password is wrong, 403 if the user is blocked."""
        query = select(users.c.id, users.c.password_hash).join(organizations)
        async with self._engine.connect() as sql:
            known = (await sql.execute(query.where(_named(form.organization, form.email)))).one_or_none()
        password = form.password.get_secret_value()
        matches = await self._passwords.verify(password, None if known is None else known.password_hash)
        if known is None or not matches:
            return None
        return await self._start_session(known.id, known.password_hash, ip, handle)

    async def change_password(
        self, user_id: UUID, password: str, ip: str, handle: RequestSession[CachedSession]
    ) -> int:
        """Set a password and end all sessions; the number of sessions. The caller gets a new one."""
        password_hash = await self._passwords.hash(password)
        changed = update(users).where(users.c.id == user_id).values(password_hash=password_hash)
        async with self._engine.begin() as sql:
            await sql.execute(changed)
            await self.sign_outs.add(sql, user_id)
        ended = await self.sign_outs.end(user_id)
        await self._start_session(user_id, password_hash, ip, handle)
        return ended

    async def credentials(self, user_id: UUID) -> tuple[str, str, str]:
        """A user's organization and address, which a sign-in names, and the hash of their password."""
        query = select(organizations.c.name, users.c.email, users.c.password_hash).join(organizations)
        async with self._engine.connect() as sql:
            row = (await sql.execute(query.where(users.c.id == user_id))).one_or_none()
        if row is None:
            raise problem(404, "Your account was just deleted.")
        return row.name, row.email, row.password_hash

    async def _start_session(
        self, user_id: UUID, password_hash: str, ip: str, handle: RequestSession[CachedSession]
    ) -> Account | None:
        """Start a session for a password that was right; None if it has changed since, 403 if blocked."""
        c, sign_in = users.c, await handle.begin_sign_in(str(user_id))
        account = await self._read(and_(c.id == user_id, c.password_hash == password_hash))
        if account is None:
            return None
        if account.blocked:
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

    async def active(self, user_id: UUID) -> Account | None:
        """A user who is not blocked."""
        account = await self._read(users.c.id == user_id)
        return None if account is None or account.blocked else account

    async def change(self, user_id: UUID, organization_id: UUID, **values: RoleName | bool) -> int:
        """Change a user's role, or block them, and end all their sessions; the number of sessions.

        409 if the organization would have no administrator any more.
        """
        c = users.c
        changed = update(users).where(c.id == user_id, c.organization_id == organization_id).values(**values)
        async with self._engine.begin() as sql, _keeping_an_administrator(sql, organization_id):
            if not (await sql.execute(changed)).rowcount:
                raise problem(404, "There is no such user in your organization.")
            await self.sign_outs.add(sql, user_id)
        return await self.sign_outs.end(user_id)

    async def list(self, organization_id: UUID) -> Sequence[Any]:
        """The users of an organization, by address."""
        c = users.c
        query = select(c.id, c.email, c.role, c.blocked, c.created_at)
        async with self._engine.connect() as sql:
            mine = query.where(c.organization_id == organization_id).order_by(func.lower(c.email))
            return (await sql.execute(mine)).all()

    async def delete(self, user_id: UUID, organization_id: UUID, heir: UUID) -> None:
        """Delete a user and end their sessions; what they made belongs to the heir, another user.

        Their API keys end with them. 404 if there is no such user, 409 for the heir themselves and for the
        last administrator.
        """
        if user_id == heir:
            raise problem(409, "You cannot delete your own account; another administrator can.")
        c = users.c
        async with self._engine.begin() as sql, _keeping_an_administrator(sql, organization_id):
            both = select(c.id).where(c.id.in_((user_id, heir)), c.organization_id == organization_id)
            found = set((await sql.execute(both.with_for_update())).scalars())
            if user_id not in found:
                raise problem(404, "There is no such user in your organization.")
            if heir not in found:
                raise problem(409, "Your own account was just deleted.")
            for table in (documents, presentations, exports):
                await sql.execute(update(table).where(table.c.user_id == user_id).values(user_id=heir))
            await sql.execute(delete(users).where(c.id == user_id))
            await self.sign_outs.add(sql, user_id)
        await self.sign_outs.end(user_id)

    async def _read(self, where: ColumnElement[bool]) -> Account | None:
        c = users.c
        query = select(c.id, c.organization_id, c.email, c.role, c.blocked, organizations.c.plan)
        joined = query.join(organizations, organizations.c.id == c.organization_id).where(where)
        async with self._engine.connect() as sql:
            row = (await sql.execute(joined)).one_or_none()
        return None if row is None else Account(*row)


@asynccontextmanager
async def _keeping_an_administrator(sql: AsyncConnection, organization_id: UUID) -> AsyncIterator[None]:
    """A change of users; 409 if the organization has no administrator after it, and had one before.

    Changes of one organization run one after the other: two administrators who demote or delete each other
    at once would both see that one is left.
    """
    c, o = users.c, organizations.c
    left = select(func.count()).where(c.organization_id == organization_id, c.role == _ADMIN, ~c.blocked)
    await sql.execute(select(o.id).where(o.id == organization_id).with_for_update(key_share=True))
    had = (await sql.execute(left)).scalar_one()
    yield
    if had and not (await sql.execute(left)).scalar_one():
        raise problem(409, "This is the last administrator; give another user the role first.")


def _named(organization: str, email: str) -> ColumnElement[bool]:
    """The condition that selects the account of an address in an organization."""
    return and_(
        func.lower(organizations.c.name) == organization.lower(),
        func.lower(users.c.email) == email.lower(),
    )
