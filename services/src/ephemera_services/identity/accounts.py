"""Users and their profiles: stored in SQL, and cached in Redis.

A profile update is committed first and then invalidated in the cache, whose fills are fenced: a reader who
loaded the old row cannot put it back. If Redis is unavailable at that moment the update stands, and the
invalidation is retried until it succeeds or the entry has expired; until then others may read the old one.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed
from ephemera_services.identity.keys import PROFILES, Profile
from ephemera_services.identity.tables import users
from ephemera_services.runtime import problem

_RETRY_INTERVAL = 0.5  # seconds
_NO_USER = "There is no such user."


class Accounts:
    """The users of the service."""

    def __init__(self, engine: AsyncEngine, store: Store) -> None:
        self._engine = engine
        self._cache = store[PROFILES]
        self._invalidating: set[asyncio.Task[None]] = set()

    async def register(self, email: str, password_hash: str, role: str = "user", **profile: str) -> UUID:
        """Create a user, and return the id; 409 if the address is taken."""
        row = {"id": uuid4(), "email": email, "password_hash": password_hash, "role": role, **profile}
        try:
            async with self._engine.begin() as sql:
                await sql.execute(insert(users).values(row))
        except IntegrityError:
            raise problem(409, "An account with this address already exists.") from None
        return row["id"]  # type: ignore[return-value]

    async def by_email(self, email: str) -> Any | None:
        """The id and password hash of the user with an address."""
        wanted = select(users.c.id, users.c.password_hash).where(func.lower(users.c.email) == email.lower())
        async with self._engine.connect() as sql:
            return (await sql.execute(wanted)).one_or_none()

    async def change_hash(self, user_id: UUID, password_hash: str) -> None:
        """Store another hash of the same password."""
        async with self._engine.begin() as sql:
            await sql.execute(update(users).where(users.c.id == user_id).values(password_hash=password_hash))

    async def set_role(self, user_id: UUID, role: str) -> None:
        """Set a user's role; 404 if there is no such user. Tokens have the old one until they are revoked."""
        change = update(users).where(users.c.id == user_id).values(role=role, updated_at=func.now())
        async with self._engine.begin() as sql:
            if not (await sql.execute(change)).rowcount:
                raise problem(404, _NO_USER)

    async def exists(self, user_id: UUID) -> None:
        """Raise 404 unless there is such a user."""
        async with self._engine.connect() as sql:
            if (await sql.execute(select(users.c.id).where(users.c.id == user_id))).one_or_none() is None:
                raise problem(404, _NO_USER)

    async def profile(self, user_id: str) -> Profile:
        """A user's profile, from the cache if possible; 404 if there is no such user."""
        found = await self._cache.get_or_load(self._load, user_id=user_id)
        if found is None:
            raise problem(404, _NO_USER)
        return found

    async def update_profile(self, user_id: str, **changes: str) -> Profile:
        """Change a profile in SQL, and invalidate it in every cache."""
        change = update(users).where(users.c.id == UUID(user_id))
        async with self._engine.begin() as sql:
            done = await sql.execute(change.values(**changes, updated_at=func.now()).returning(*_PROFILE))
            row = done.one_or_none()
        if row is None:
            raise problem(404, _NO_USER)
        try:
            await self._cache.delete(user_id=user_id)
        except ConnectionFailed:
            task = asyncio.create_task(self._invalidate_later(user_id), name="identity-invalidate-profile")
            self._invalidating.add(task)
            task.add_done_callback(self._invalidating.discard)
        return _profile(row)

    async def invalidate_profile(self, user_id: str) -> None:
        """Invalidate a profile in every cache."""
        await self._cache.delete(user_id=user_id)

    async def aclose(self) -> None:
        """Stop retrying invalidations."""
        for task in self._invalidating:
            task.cancel()
        if self._invalidating:
            await asyncio.wait(self._invalidating)

    async def _load(self, user_id: str) -> Profile | None:
        async with self._engine.connect() as sql:
            row = (await sql.execute(select(*_PROFILE).where(users.c.id == UUID(user_id)))).one_or_none()
        return None if row is None else _profile(row)

    async def _invalidate_later(self, user_id: str) -> None:
        expired = time.monotonic() + PROFILES.fresh.total_seconds()
        while time.monotonic() < expired:
            await asyncio.sleep(_RETRY_INTERVAL)
            try:
                await self._cache.delete(user_id=user_id)
            except ConnectionFailed:
                continue
            return


_PROFILE = (
    users.c.id,
    users.c.email,
    users.c.first_name,
    users.c.last_name,
    users.c.phone,
    users.c.address,
    func.now().label("cached_at"),
)


def _profile(row: Any) -> Profile:
    return Profile(
        user_id=str(row.id),
        email=row.email,
        first_name=row.first_name,
        last_name=row.last_name,
        phone=row.phone,
        address=row.address,
        cached_at=row.cached_at,
    )
