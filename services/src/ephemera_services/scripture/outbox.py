"""Scripture's outbox: events about users and ingests, written to SQL with the change that causes them."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera_services.runtime import TransactionalOutbox, UserChanged, UserCreated
from ephemera_services.scripture.events import ContentChanged
from ephemera_services.scripture.keys import INGESTS, USERS
from ephemera_services.scripture.tables import outbox_events

OutboxEvent = UserCreated | UserChanged | ContentChanged


class Outbox:
    """The events of committed changes; `publish` and `relay` are those of the `TransactionalOutbox`."""

    def __init__(self, engine: AsyncEngine, store: Store) -> None:
        self._users, self._ingests = store[USERS], store[INGESTS]
        self._outbox = TransactionalOutbox(engine, store, outbox_events, self._send)
        self.publish, self.relay = self._outbox.publish, self._outbox.relay

    async def add(self, sql: AsyncConnection, event: OutboxEvent) -> int:
        """Add an event to a transaction; its number, for `publish` after the commit."""
        stream = "ingest" if isinstance(event, ContentChanged) else "users"
        return await self._outbox.add(sql, stream, msgspec.to_builtins(event))

    async def _send(self, stream: str, event: dict[str, Any], number: int) -> None:
        if stream == "ingest":
            await self._ingests.publish(msgspec.convert(event, ContentChanged))
        else:
            decoded = msgspec.convert(event, UserCreated | UserChanged)
            await self._users.publish(msgspec.structs.replace(decoded, number=number))
