"""Users and their profiles: stored in SQL, and cached in Redis.

A profile update is committed first and then invalidated in the cache, whose fills are fenced: a reader who
loaded the old row cannot put it back. If Redis is unavailable at that moment the update stands, and the
invalidation is retried until it succeeds or the entry has expired; until then others may read the old one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed
from ephemera_services.identity.keys import PROFILES, Profile
from ephemera_services.identity.mailer import Mailer
from ephemera_services.identity.security_log import Origin, record
from ephemera_services.identity.tables import AnyRow, users
from ephemera_services.identity.user_events import UserEvents
from ephemera_services.runtime import problem

_RETRY_INTERVAL = 0.5  # seconds
_NO_USER = "There is no such user."


class Accounts:
    """The users of the service."""

    def __init__(self, engine: AsyncEngine, store: Store, mailer: Mailer, events: UserEvents) -> None:
        self._engine = engine
        self._mailer = mailer
        self._events = events
        self._cache = store[PROFILES]
        self._invalidating: set[asyncio.Task[None]] = set()

    async def register(
        self,
        email: str,
        password_hash: str,
        profile: Mapping[str, str],
        *,
        role: str = "user",
        origin: Origin | None = None,
    ) -> UUID | None:
        """Create a user, and return the id; None if the address is taken.

        With an origin, the owner of the address gets a mail in either case; without one, it is confirmed.
        """
        row = {"id": uuid4(), "email": email, "password_hash": password_hash, "role": role, **profile}
        verified = func.now() if origin is None else None
        added = insert(users).values(**row, email_verified_at=verified).on_conflict_do_nothing()
        async with self._engine.begin() as sql:
            user = (await sql.execute(added.returning(*_PROFILE))).one_or_none()
            if user is not None:
                await self._events.created(sql, user)
                await record(sql, user.id, "registered", origin or Origin("", "", by_admin=True))
            if origin is not None:
                await self._mailer.request(sql, "registered", email)
        self._mailer.wake()
        self._events.publish_soon()
        return None if user is None else user.id

    async def by_email(self, email: str) -> AnyRow | None:
        """The id, password hash and state of the user with an address."""
        return await self._credentials(func.lower(users.c.email) == email.lower())

    async def by_id(self, user_id: UUID) -> AnyRow:
        """The same of a user; 404 if there is no such user."""
        found = await self._credentials(users.c.id == user_id)
        if found is None:
            raise problem(404, _NO_USER)
        return found

    async def change_hash(self, user_id: UUID, password_hash: str, version: int) -> None:
        """Store another hash of the same password, unless the password has changed since."""
        same = update(users).where(users.c.id == user_id, users.c.password_version == version)
        async with self._engine.begin() as sql:
            await sql.execute(same.values(password_hash=password_hash))

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
            await self._events.updated(sql, row)
        await self.changed(user_id)
        return _profile(row)

    async def changed(self, user_id: str) -> None:
        """Invalidate a profile after its change was committed, now or when Redis is back; publish events."""
        self._events.publish_soon()
        try:
            await self._cache.delete(user_id=user_id)
        except ConnectionFailed:
            task = asyncio.create_task(self._invalidate_later(user_id), name="identity-invalidate-profile")
            self._invalidating.add(task)
            task.add_done_callback(self._invalidating.discard)

    async def invalidate_profile(self, user_id: str) -> None:
        """Invalidate a profile in every cache."""
        await self._cache.delete(user_id=user_id)

    async def aclose(self) -> None:
        """Stop retrying invalidations."""
        for task in self._invalidating:
            task.cancel()
        if self._invalidating:
            await asyncio.wait(self._invalidating)

    async def _credentials(self, which: ColumnElement[bool]) -> AnyRow | None:
        query = select(
            users.c.id,
            users.c.email,
            users.c.password_hash,
            users.c.password_version,
            users.c.role,
            users.c.email_verified_at,
        )
        async with self._engine.connect() as sql:
            return (await sql.execute(query.where(which))).one_or_none()

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


def _profile(row: AnyRow) -> Profile:
    return Profile(
        user_id=str(row.id),
        email=row.email,
        first_name=row.first_name,
        last_name=row.last_name,
        phone=row.phone,
        address=row.address,
        cached_at=row.cached_at,
    )
