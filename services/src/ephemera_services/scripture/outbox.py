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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, func, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed, ServerError
from ephemera_services.runtime import cancel_and_wait
from ephemera_services.scripture.events import ContentChanged, UserChanged, UserCreated
from ephemera_services.scripture.keys import INGESTS, USERS
from ephemera_services.scripture.tables import outbox_events

_RELAY_INTERVAL = 2.0  # seconds
_RELAY_AFTER = text("interval '5 seconds'")  # by then its writer has published it, or cannot
_RETENTION = text("interval '1 minute'")  # by then replicas have it, or a failover was noticed
_BATCH = 100

logger = logging.getLogger(__name__)
OutboxEvent = UserCreated | UserChanged | ContentChanged


class Outbox:
    """The events of committed changes."""

    def __init__(self, engine: AsyncEngine, store: Store) -> None:
        self._engine = engine
        self._client = store.client("queue")
        self._users, self._ingests = store[USERS], store[INGESTS]

    async def add(self, sql: AsyncConnection, event: OutboxEvent) -> int:
        """Add an event to a transaction; its number, for `publish` after the commit."""
        stream = "ingest" if isinstance(event, ContentChanged) else "users"
        row = {"stream": stream, "event": msgspec.to_builtins(event)}
        added = insert(outbox_events).values(row).returning(outbox_events.c.number)
        number: int = (await sql.execute(added)).scalar_one()
        return number

    async def publish(self, number: int) -> bool:
        """Publish an event now; False if Redis is down and the relay will."""
        try:
            await self._publish(outbox_events.c.number == number)
        except (ConnectionFailed, ServerError):
            logger.warning("an event waits for Redis", extra={"number": number})
            return False
        return True

    @asynccontextmanager
    async def relay(self) -> AsyncIterator[None]:
        """Publish unpublished events within a block."""
        task = asyncio.create_task(self._relay(), name="scripture-relay")
        try:
            yield
        finally:
            await cancel_and_wait([task])

    async def _relay(self) -> None:
        repeated = self._client.connects
        while True:
            await asyncio.sleep(_RELAY_INTERVAL)
            try:
                while await self._publish(outbox_events.c.at < func.now() - _RELAY_AFTER):
                    pass
                if self._client.up and (connects := self._client.connects) != repeated:
                    await self._publish_again()
                    repeated = connects
                elif self._client.up:
                    await self._prune()
            except (ConnectionFailed, ServerError, SQLAlchemyError) as problem:
                logger.info("events wait for their servers", extra={"problem": type(problem).__name__})

    async def _publish_again(self) -> None:
        """Publish recently published events again."""
        number = 0
        while True:
            published = (outbox_events.c.number > number) & outbox_events.c.published_at.is_not(None)
            some = select(outbox_events).where(published).order_by(outbox_events.c.number).limit(_BATCH)
            async with self._engine.connect() as sql:
                rows = (await sql.execute(some)).all()
            for row in rows:
                await self._send(row.stream, row.event, row.number)
            if not rows:
                return
            number = rows[-1].number

    async def _prune(self) -> None:
        """Delete events past their retention, while Redis is connected."""
        old = outbox_events.c.published_at < func.now() - _RETENTION
        async with self._engine.begin() as sql:
            await sql.execute(delete(outbox_events).where(old))

    async def _publish(self, which: ColumnElement[bool]) -> int:
        """Publish a batch of unpublished events and record it, or neither; their number."""
        unpublished = select(outbox_events.c.number).where(which, outbox_events.c.published_at.is_(None))
        some = unpublished.order_by(outbox_events.c.number).limit(_BATCH).with_for_update(skip_locked=True)
        claimed = update(outbox_events).where(outbox_events.c.number.in_(some))
        recorded = claimed.values(published_at=func.now()).returning(outbox_events)
        async with self._engine.begin() as sql:
            rows = (await sql.execute(recorded)).all()
            for row in sorted(rows, key=lambda row: row.number):
                await self._send(row.stream, row.event, row.number)
        return len(rows)

    async def _send(self, stream: str, event: dict[str, Any], number: int) -> None:
        if stream == "ingest":
            await self._ingests.publish(msgspec.convert(event, ContentChanged))
        else:
            decoded = msgspec.convert(event, UserCreated | UserChanged)
            await self._users.publish(msgspec.structs.replace(decoded, number=number))
