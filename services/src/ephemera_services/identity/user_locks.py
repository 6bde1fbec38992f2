"""Locks on a user's row, which order the changes of an account and the sign-ins of its user.

A change of the role, the password or the block, and a deletion, lock the row (`lock_user`). A request that
issues tokens reads it under a shared lock (`lock_role`), so it sees the change or ends before it.

Changes that could take the last administrator away also have a lock in common (`keeping_an_administrator`).
They acquire it after the user's row, and then no other user's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.identity.tables import users
from ephemera_services.runtime import advisory_lock, problem, unauthorized

ENDED = "This sign-in has ended: sign in again."


async def lock_user(sql: AsyncConnection, user_id: UUID) -> None:
    """Lock a user's row until the transaction ends; 404 if there is no such user."""
    query = select(users.c.id).where(users.c.id == user_id).with_for_update()
    if (await sql.execute(query)).one_or_none() is None:
        raise problem(404, "There is no such user.")


async def lock_role(sql: AsyncConnection, user_id: UUID, password_version: int | None = None) -> str:
    """A user's role, which cannot change before the transaction ends; 401 or 403 if they may not sign in."""
    query = select(users.c.role, users.c.password_version, users.c.blocked_at).where(users.c.id == user_id)
    user = (await sql.execute(query.with_for_update(read=True))).one_or_none()
    if user is None:
        raise unauthorized(ENDED)
    if user.blocked_at is not None:
        raise problem(403, "This account is blocked; ask an administrator.")
    if password_version not in (None, user.password_version):
        raise unauthorized("The password was just changed: sign in with the new one.", token=False)
    return str(user.role)


@asynccontextmanager
async def keeping_an_administrator(sql: AsyncConnection, by: UUID | None = None) -> AsyncIterator[None]:
    """A change of a user; 409 if no administrator could sign in after it, 403 unless `by` is one.

    Such changes run one after the other: two administrators who demote each other at once would both see
    that one is left.
    """
    active = select(users.c.id).where(users.c.role == "admin", users.c.blocked_at.is_(None))
    await advisory_lock(sql, "administrators of identity")
    before = set((await sql.execute(active)).scalars())
    if by is not None and by not in before:
        raise problem(403, "You are no administrator any more.")
    yield
    if before and (await sql.execute(active.limit(1))).first() is None:
        raise problem(409, "This is the last administrator; give another user the role first.")
