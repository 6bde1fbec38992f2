"""API keys: 256 random bits with their owner's role, an end, and a limited number for each user.

SQL has only the digest of a key, so a dump grants no access. A key is looked up for each request: revoking it
is effective from the next one. Expired keys are deleted when their owner creates another one.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera_services.runtime import problem
from ephemera_services.slides.tables import api_keys, users

_PREFIX = "sk_"


class NewApiKey(NamedTuple):
    """A key that was just created; it cannot be read again."""

    id: UUID
    key: str
    expires_at: datetime


class ApiKeys:
    """The API keys of all users."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def find(self, key: str) -> tuple[UUID, UUID] | None:
        """The id of a key and of its owner; None if it is not valid."""
        if not key.startswith(_PREFIX):
            return None
        query = select(api_keys.c.id, api_keys.c.user_id).where(api_keys.c.digest == _digest(key), _valid())
        async with self._engine.connect() as sql:
            row = (await sql.execute(query)).one_or_none()
        return None if row is None else (row.id, row.user_id)

    async def create(self, user_id: UUID, name: str, lifetime: timedelta, limit: int) -> NewApiKey:
        """Create a key; 409 if the user has `limit` of them."""
        key_id, key = uuid4(), _PREFIX + secrets.token_urlsafe(32)
        row = {"id": key_id, "user_id": user_id, "name": name, "digest": _digest(key)}
        mine = api_keys.c.user_id == user_id
        async with self._engine.begin() as sql:
            # Serialized: parallel requests would all see the same number of keys.
            await sql.execute(select(users.c.id).where(users.c.id == user_id).with_for_update(key_share=True))
            await sql.execute(delete(api_keys).where(mine, ~_valid()))
            if (await sql.execute(select(func.count()).where(mine))).scalar_one() >= limit:
                raise problem(409, f"You have {limit} API keys; revoke one before you create another one.")
            made = insert(api_keys).values(**row, expires_at=func.now() + lifetime)
            expires_at = (await sql.execute(made.returning(api_keys.c.expires_at))).scalar_one()
        return NewApiKey(key_id, key, expires_at)

    async def list(self, user_id: UUID) -> Sequence[Any]:
        """The keys of a user that have not expired, the oldest first."""
        c = api_keys.c
        query = select(c.id, c.name, c.created_at, c.expires_at).where(c.user_id == user_id, _valid())
        async with self._engine.connect() as sql:
            return (await sql.execute(query.order_by(c.created_at, c.id))).all()

    async def revoke(self, user_id: UUID, key_id: UUID) -> None:
        """Delete a key; 404 if the user has no such key."""
        c = api_keys.c
        async with self._engine.begin() as sql:
            if not (await sql.execute(delete(api_keys).where(c.id == key_id, c.user_id == user_id))).rowcount:
                raise problem(404, "You have no such API key.")


def _valid() -> Any:
    return api_keys.c.expires_at > func.now()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
