"""The security log: what happened to an account, from where, for its owner and for administrators.

Events are written in the transaction of the change they are about, so the log has exactly what happened. Only
a refused sign-in changes nothing; it is written in the background, so that an attempt on an account takes no
longer than one on an unknown address. Events are kept for 90 days, and deleted with their account.
"""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera_services.identity.background import BackgroundTasks
from ephemera_services.identity.tables import AnyRow, security_events

SecurityEvent = Literal[
    "registered",
    "signed_in",
    "sign_in_refused",
    "signed_out",
    "session_ended",
    "all_sessions_ended",
    "refresh_token_reused",
    "password_changed",
    "password_reset",
    "email_confirmed",
    "email_change_requested",
    "email_changed",
    "role_changed",
    "blocked",
    "unblocked",
    "exported",
]


class Origin(NamedTuple):
    """The client of a request; `by_admin` if it is an administrator's, whose address users do not see."""

    ip_address: str
    user_agent: str
    by_admin: bool = False


async def record(sql: AsyncConnection, user_id: UUID, what: SecurityEvent, origin: Origin) -> None:
    """Add an event to a transaction."""
    shown = Origin("", "", by_admin=True) if origin.by_admin else origin
    await sql.execute(insert(security_events).values(user_id=user_id, what=what, **shown._asdict()))


class SecurityLog:
    """The events of all users."""

    def __init__(self, engine: AsyncEngine, background: BackgroundTasks) -> None:
        self._engine = engine
        self._background = background

    def record_later(self, user_id: UUID, what: SecurityEvent, origin: Origin) -> None:
        """Write an event that belongs to no change."""
        self._background.start(self._record(user_id, what, origin), "security-log")

    async def of_user(self, user_id: UUID, *, before: int | None, limit: int) -> list[AnyRow]:
        """The events of a user, the newest first, below a number if given."""
        query = select(security_events).where(security_events.c.user_id == user_id)
        if before is not None:
            query = query.where(security_events.c.number < before)
        async with self._engine.connect() as sql:
            newest = query.order_by(security_events.c.number.desc()).limit(limit)
            return list((await sql.execute(newest)).all())

    async def _record(self, user_id: UUID, what: SecurityEvent, origin: Origin) -> None:
        async with self._engine.begin() as sql:
            await record(sql, user_id, what, origin)
