"""Events that must not be lost: written to SQL with the change that causes them, published after its commit.

`publish` tries at once; what Redis did not hear is published by a relay, every few seconds, in any process
that handles events. What was published stays for a minute, and the relay publishes it again whenever it was
disconnected: a master that died may have taken it along before its replica heard of it.

So an event may be published more than once, as may one whose answer was lost: as another entry of the stream,
and with the same number, by which consumers know it.
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
from ephemera_services.scripture.tables import delayed_events

_EVERY = 2.0  # seconds
_WAITED = text("interval '5 seconds'")  # by then, whoever wrote it has published it or cannot
_KEPT = text("interval '1 minute'")  # by then, replicas have it, or we know that their master is gone
_TOGETHER = 100

logger = logging.getLogger(__name__)
Happening = UserCreated | UserChanged | ContentChanged


class Outbox:
    """The events of committed changes."""

    def __init__(self, engine: AsyncEngine, store: Store) -> None:
        self._engine = engine
        self._client = store.client("queue")
        self._users, self._ingests = store[USERS], store[INGESTS]

    async def add(self, sql: AsyncConnection, event: Happening) -> int:
        """Have an event published if this transaction commits; its number, for `publish`."""
        stream = "ingest" if isinstance(event, ContentChanged) else "users"
        row = {"stream": stream, "event": msgspec.to_builtins(event)}
        added = insert(delayed_events).values(row).returning(delayed_events.c.number)
        number: int = (await sql.execute(added)).scalar_one()
        return number

    async def publish(self, number: int) -> bool:
        """Publish an event now; False when Redis cannot be told, and the relay will."""
        try:
            await self._publish(delayed_events.c.number == number)
        except (ConnectionFailed, ServerError):
            logger.warning("an event waits for Redis", extra={"number": number})
            return False
        return True

    @asynccontextmanager
    async def relaying(self) -> AsyncIterator[None]:
        """Publish what was left behind, while the block lasts."""
        task = asyncio.create_task(self._relay(), name="scripture-relay")
        try:
            yield
        finally:
            await cancel_and_wait([task])

    async def _relay(self) -> None:
        repeated = self._client.connects
        while True:
            await asyncio.sleep(_EVERY)
            try:
                while await self._publish(delayed_events.c.at < func.now() - _WAITED):
                    pass
                if self._client.up and (connects := self._client.connects) != repeated:
                    await self._publish_again()
                    repeated = connects
                elif self._client.up:
                    await self._forget()
            except (ConnectionFailed, ServerError, SQLAlchemyError) as problem:
                logger.info("events wait for their servers", extra={"problem": type(problem).__name__})

    async def _publish_again(self) -> None:
        """Publish once more what was published lately."""
        number = 0
        while True:
            published = (delayed_events.c.number > number) & delayed_events.c.published_at.is_not(None)
            some = select(delayed_events).where(published).order_by(delayed_events.c.number).limit(_TOGETHER)
            async with self._engine.connect() as sql:
                rows = (await sql.execute(some)).all()
            for row in rows:
                await self._send(row.stream, row.event, row.number)
            if not rows:
                return
            number = rows[-1].number

    async def _forget(self) -> None:
        """Keep no longer what was published long enough ago, while nothing has happened to Redis."""
        old = delayed_events.c.published_at < func.now() - _KEPT
        async with self._engine.begin() as sql:
            await sql.execute(delete(delayed_events).where(old))

    async def _publish(self, which: ColumnElement[bool]) -> int:
        """Publish some events that were not, and note it, or neither; how many."""
        free = select(delayed_events.c.number).where(which, delayed_events.c.published_at.is_(None))
        some = free.order_by(delayed_events.c.number).limit(_TOGETHER).with_for_update(skip_locked=True)
        taken = update(delayed_events).where(delayed_events.c.number.in_(some))
        noted = taken.values(published_at=func.now()).returning(delayed_events)
        async with self._engine.begin() as sql:
            rows = (await sql.execute(noted)).all()
            for row in sorted(rows, key=lambda row: row.number):
                await self._send(row.stream, row.event, row.number)
        return len(rows)

    async def _send(self, stream: str, event: dict[str, Any], number: int) -> None:
        if stream == "ingest":
            await self._ingests.publish(msgspec.convert(event, ContentChanged))
        else:
            happened = msgspec.convert(event, UserCreated | UserChanged)
            await self._users.publish(msgspec.structs.replace(happened, number=number))
