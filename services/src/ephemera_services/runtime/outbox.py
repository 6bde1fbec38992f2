"""A transactional outbox: events are written to SQL with the change that causes them, and published after.

`publish` tries at once; what Redis did not accept is published by a relay, every few seconds, in any process
that handles events. A published event is kept for a minute, and the relay publishes it again after a
reconnect: a master that died may not have replicated it.

So an event may be published more than once, as another entry of the stream, but with the same number, by
which consumers recognize it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

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
    text,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed, ServerError
from ephemera_services.runtime.worker import cancel_and_wait

_RELAY_INTERVAL = 2.0  # seconds
_RELAY_AFTER = text("interval '5 seconds'")  # by then its writer has published it, or cannot
_RETENTION = text("interval '1 minute'")  # by then replicas have it, or a failover was noticed
_BATCH = 100

logger = logging.getLogger(__name__)
Send = Callable[[str, dict[str, Any], int], Awaitable[object]]


def outbox_table(metadata: MetaData) -> Table:
    """Declare the table of an outbox, `outbox_events`."""
    return Table(
        "outbox_events",
        metadata,
        Column("number", BigInteger, Identity(), primary_key=True),
        Column("stream", Text, nullable=False),
        Column("event", JSONB, nullable=False),
        Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        Column("published_at", DateTime(timezone=True)),
    )


class TransactionalOutbox:
    """The events of committed changes, and the relay that publishes them."""

    def __init__(self, engine: AsyncEngine, store: Store, table: Table, send: Send) -> None:
        """`send(stream, event, number)` publishes an event to the store."""
        self._engine = engine
        self._client = store.client("queue")
        self._table = table
        self._send = send

    async def add(self, sql: AsyncConnection, stream: str, event: dict[str, Any]) -> int:
        """Add an event to a transaction; its number, for `publish` after the commit."""
        added = insert(self._table).values(stream=stream, event=event).returning(self._table.c.number)
        number: int = (await sql.execute(added)).scalar_one()
        return number

    async def publish(self, number: int) -> bool:
        """Publish an event now; False if Redis is down and the relay will."""
        try:
            await self._publish(self._table.c.number == number)
        except (ConnectionFailed, ServerError):
            logger.warning("an event waits for Redis", extra={"number": number})
            return False
        return True

    async def publish_pending(self) -> None:
        """Publish what was committed and is not published yet, or leave it to the relay."""
        try:
            while await self._publish(self._table.c.published_at.is_(None)):
                pass
        except (ConnectionFailed, ServerError, SQLAlchemyError) as problem:
            logger.warning("events wait for their servers", extra={"problem": type(problem).__name__})

    @asynccontextmanager
    async def relay(self) -> AsyncIterator[None]:
        """Publish unpublished events within a block."""
        task = asyncio.create_task(self._relay(), name="outbox-relay")
        try:
            yield
        finally:
            await cancel_and_wait([task])

    async def _relay(self) -> None:
        repeated = self._client.connection_count
        while True:
            await asyncio.sleep(_RELAY_INTERVAL)
            try:
                while await self._publish(self._table.c.at < func.now() - _RELAY_AFTER):
                    pass
                if self._client.up and (connections := self._client.connection_count) != repeated:
                    await self._publish_again()
                    repeated = connections
                elif self._client.up:
                    await self._prune()
            except (ConnectionFailed, ServerError, SQLAlchemyError) as problem:
                logger.info("events wait for their servers", extra={"problem": type(problem).__name__})

    async def _publish_again(self) -> None:
        """Publish recently published events again."""
        number = 0
        while True:
            published = (self._table.c.number > number) & self._table.c.published_at.is_not(None)
            some = select(self._table).where(published).order_by(self._table.c.number).limit(_BATCH)
            async with self._engine.connect() as sql:
                rows = (await sql.execute(some)).all()
            for row in rows:
                await self._send(row.stream, row.event, row.number)
            if not rows:
                return
            number = rows[-1].number

    async def _prune(self) -> None:
        """Delete events past their retention, while Redis is connected."""
        old = self._table.c.published_at < func.now() - _RETENTION
        async with self._engine.begin() as sql:
            await sql.execute(delete(self._table).where(old))

    async def _publish(self, which: ColumnElement[bool]) -> int:
        """Publish a batch of unpublished events and record it, or neither; their number."""
        unpublished = select(self._table.c.number).where(which, self._table.c.published_at.is_(None))
        some = unpublished.order_by(self._table.c.number).limit(_BATCH).with_for_update(skip_locked=True)
        claimed = update(self._table).where(self._table.c.number.in_(some))
        recorded = claimed.values(published_at=func.now()).returning(self._table)
        async with self._engine.begin() as sql:
            rows = (await sql.execute(recorded)).all()
            for row in sorted(rows, key=lambda row: row.number):
                await self._send(row.stream, row.event, row.number)
        return len(rows)
