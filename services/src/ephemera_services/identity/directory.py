"""The accounts as administrators see them: listed by address, searched by address and name."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera_services.identity.tables import AnyRow, users
from ephemera_services.runtime import problem

_ACCOUNT = (
    users.c.id.label("user_id"),
    users.c.email,
    users.c.email_verified_at,
    users.c.first_name,
    users.c.last_name,
    users.c.role,
    users.c.blocked_at,
    users.c.created_at,
)


class UserDirectory:
    """Reads accounts from SQL."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def account(self, user_id: UUID) -> AnyRow:
        """An account; 404 if there is none."""
        async with self._engine.connect() as sql:
            row = (await sql.execute(select(*_ACCOUNT).where(users.c.id == user_id))).one_or_none()
        if row is None:
            raise problem(404, "There is no such user.")
        return row

    async def search(
        self, text: str, *, role: str | None, blocked: bool | None, after: str, limit: int
    ) -> list[AnyRow]:
        """The accounts whose address or name has this text, by address, from the one after `after`."""
        address = func.lower(users.c.email)
        query = select(*_ACCOUNT).where(address > after.lower()).order_by(address).limit(limit)
        if text:
            name = func.lower(users.c.first_name + " " + users.c.last_name)
            found = [each.contains(text.lower(), autoescape=True) for each in (address, name)]
            query = query.where(or_(*found))
        if role is not None:
            query = query.where(users.c.role == role)
        if blocked is not None:
            query = query.where(users.c.blocked_at.is_not(None) if blocked else users.c.blocked_at.is_(None))
        async with self._engine.connect() as sql:
            return list((await sql.execute(query)).all())
