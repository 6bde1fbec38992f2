"""Deletes rows that no longer matter, every ten minutes.

Old security events, expired codes, mails that could not be sent for a day, and the ended sign-ins of deleted
users and the revoked tokens once no service can hold a valid token of theirs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from sqlalchemy import delete, func
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera_services.identity.tables import (
    mail_tokens,
    mails,
    revoked_tokens,
    security_events,
    sign_ins,
)
from ephemera_services.runtime import cancel_and_wait

logger = logging.getLogger(__name__)

_INTERVAL = 600.0  # seconds
_LOG_RETENTION = timedelta(days=90)
_MAIL_RETENTION = timedelta(days=1)
_ORPHAN_RETENTION = timedelta(hours=1)  # longer than an access token lives


async def delete_old_rows(engine: AsyncEngine) -> None:
    """Delete what no longer matters."""
    orphaned = sign_ins.c.user_id.is_(None) & (sign_ins.c.ended_at < func.now() - _ORPHAN_RETENTION)
    async with engine.begin() as sql:
        old = security_events.c.at < func.now() - _LOG_RETENTION
        await sql.execute(delete(security_events).where(old))
        await sql.execute(delete(mail_tokens).where(mail_tokens.c.expires_at < func.now()))
        await sql.execute(delete(mails).where(mails.c.created_at < func.now() - _MAIL_RETENTION))
        await sql.execute(delete(sign_ins).where(orphaned))
        expired = revoked_tokens.c.revoked_at < func.now() - _ORPHAN_RETENTION
        await sql.execute(delete(revoked_tokens).where(expired))


@asynccontextmanager
async def upkeep(engine: AsyncEngine) -> AsyncIterator[None]:
    """Delete old rows within a block, from time to time."""
    task = asyncio.create_task(_repeat(engine), name="identity-upkeep")
    try:
        yield
    finally:
        await cancel_and_wait([task])


async def _repeat(engine: AsyncEngine) -> None:
    while True:
        await asyncio.sleep(_INTERVAL)
        try:
            await delete_old_rows(engine)
        except SQLAlchemyError as problem:
            logger.info("old rows were not deleted yet", extra={"problem": type(problem).__name__})
