"""Sessions that a committed change must end, even when Redis is down or the process ends before it has.

A session carries its user's role. So what demotes, blocks or deletes a user adds a row to the same
transaction, and ends the user's sessions after the commit. The row is deleted when that was done. What a
process has not done, because Redis did not answer or because it died, any process of the service does: each
looks for such rows at its start and every two seconds. A row is locked while its sessions are ended, so no
other process ends a session that was created since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    DateTime,
    Identity,
    MetaData,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import ConnectionFailed, ServerError
from ephemera_services.runtime.worker import cancel_and_wait

_INTERVAL = 2.0  # seconds
_BATCH = 100

logger = logging.getLogger(__name__)


def sign_outs_table(metadata: MetaData) -> Table:
    """Declare the table `pending_sign_outs`."""
    return Table(
        "pending_sign_outs",
        metadata,
        Column("number", BigInteger, Identity(), primary_key=True),
        Column("user_id", Text, nullable=False),  # no foreign key: the user may be deleted
        Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    )


class PendingSignOuts:
    """Ends sessions of users whose accounts have changed."""

    def __init__(self, engine: AsyncEngine, table: Table, end_all: Callable[[str], Awaitable[int]]) -> None:
        """`end_all(user_id)` ends all sessions of a user; their number."""
        self._engine = engine
        self._table = table
        self._end_all = end_all

    async def add(self, sql: AsyncConnection, *user_ids: object) -> None:
        """Require, with a transaction, that all sessions of users end."""
        if user_ids:
            rows = [{"user_id": str(user_id)} for user_id in user_ids]
            await sql.execute(insert(self._table), rows)

    async def end(self, user_id: object) -> int:
        """End the sessions of a user after the commit; their number. Raises if Redis is down."""
        return await self._end(self._table.c.user_id == str(user_id))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """End what is pending, within a block."""
        task = asyncio.create_task(self._sweep(), name="pending-sign-outs")
        try:
            yield
        finally:
            await cancel_and_wait([task])

    async def _end(self, which: ColumnElement[bool], *, skip_locked: bool = False) -> int:
        rows = select(self._table).where(which).with_for_update(skip_locked=skip_locked)
        async with self._engine.begin() as sql:
            found = (await sql.execute(rows)).all()
            ended = sum([await self._end_all(user_id) for user_id in {row.user_id for row in found}])
            numbers = [row.number for row in found]
            await sql.execute(delete(self._table).where(self._table.c.number.in_(numbers)))
        return ended

    async def _sweep(self) -> None:
        while True:
            try:
                await self._end_pending()
            except (ConnectionFailed, SQLAlchemyError) as problem:
                logger.info("sign-outs wait for their servers", extra={"problem": type(problem).__name__})
            await asyncio.sleep(_INTERVAL)

    async def _end_pending(self) -> None:
        number = self._table.c.number
        async with self._engine.connect() as sql:
            pending = (await sql.execute(select(number).order_by(number).limit(_BATCH))).scalars().all()
        for each in pending:
            try:
                await self._end(number == each, skip_locked=True)
            except ServerError as refused:  # of this user only
                logger.warning("sessions were not ended", extra={"problem": str(refused)})
