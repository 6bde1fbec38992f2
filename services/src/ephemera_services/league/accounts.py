"""The league's users: a name, a password hash, and a role."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera_services.league.tables import users
from ephemera_services.runtime import Passwords, problem


class Accounts:
    """The accounts of users."""

    def __init__(self, engine: AsyncEngine, passwords: Passwords) -> None:
        self._engine = engine
        self._passwords = passwords

    async def register(self, name: str, password: str, role: str = "user") -> int:
        """Create a user; the id, or 409 if the name is taken."""
        password_hash = await self._passwords.hash(password)
        adding = insert(users).values(name=name, password_hash=password_hash, role=role).returning(users.c.id)
        try:
            async with self._engine.begin() as sql:
                return int((await sql.execute(adding)).scalar_one())
        except IntegrityError:
            raise problem(409, "This name is taken.") from None

    async def authenticate(self, name: str, password: str) -> Row[Any] | None:
        """The user with a name and a password; an unknown name takes as long as a wrong password."""
        user = await self.by_name(name)
        password_hash = None if user is None else user.password_hash
        return user if await self._passwords.verify(password, password_hash) else None

    async def unblocked(self, user_id: int) -> Row[Any]:
        """The user of an id, as they are now; 403 if they are blocked."""
        async with self._engine.connect() as sql:
            user = (await sql.execute(select(users).where(users.c.id == user_id))).one_or_none()
        if user is None or user.blocked_at is not None:
            raise problem(403, "This account is blocked.")
        return user

    async def by_name(self, name: str) -> Row[Any] | None:
        """The user of a name."""
        query = select(users).where(func.lower(users.c.name) == func.lower(name))
        async with self._engine.connect() as sql:
            return (await sql.execute(query)).one_or_none()
