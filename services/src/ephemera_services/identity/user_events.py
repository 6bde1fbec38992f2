"""Events about users, for other services: `gl:events:users` on the Redis of the setting `events_url`.

They are written with the change they are about (`TransactionalOutbox`) and published right after it. While
that Redis is down they wait in SQL. Without the setting nothing is written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store, connect
from ephemera_services.identity.background import BackgroundTasks
from ephemera_services.identity.keys import USERS, events_catalogue
from ephemera_services.identity.settings import Settings
from ephemera_services.identity.tables import AnyRow, outbox_events
from ephemera_services.runtime import (
    TransactionalOutbox,
    UserCreated,
    UserDeleted,
    UserEvent,
    UserRoleChanged,
    UserUpdated,
)

_SOURCE = "identity"


class UserEvents:
    """The events of committed changes; they are only written if there is an outbox."""

    def __init__(self, outbox: TransactionalOutbox | None, background: BackgroundTasks) -> None:
        self._outbox = outbox
        self._background = background

    @classmethod
    @asynccontextmanager
    async def open(
        cls, engine: AsyncEngine, settings: Settings, background: BackgroundTasks
    ) -> AsyncIterator[UserEvents]:
        """Connect to the Redis of the settings, if any, and relay events to it within a block."""
        url, mark = settings.events_url, settings.events_identity
        if url is None:
            yield cls(None, background)
            return
        async with connect(url.reveal(), events_catalogue, required=False, identity=mark) as store:
            outbox = _outbox(engine, store)
            async with outbox.relay():
                yield cls(outbox, background)

    async def created(self, sql: AsyncConnection, user: AnyRow) -> None:
        """A user was created."""
        await self._add(sql, UserCreated(str(user.id), source=_SOURCE, email=user.email, name=_name(user)))

    async def updated(self, sql: AsyncConnection, user: AnyRow) -> None:
        """A user's address or profile changed."""
        await self._add(sql, UserUpdated(str(user.id), user.email, _name(user), source=_SOURCE))

    async def role_changed(self, sql: AsyncConnection, user_id: UUID, role: str) -> None:
        """A user's role changed."""
        await self._add(sql, UserRoleChanged(str(user_id), role, source=_SOURCE))

    async def deleted(self, sql: AsyncConnection, user_id: UUID) -> None:
        """A user was deleted."""
        await self._add(sql, UserDeleted(str(user_id), source=_SOURCE))

    def publish_soon(self) -> None:
        """Publish what was committed, in the background."""
        if self._outbox is not None:
            self._background.start(self._outbox.publish_pending(), "user-events")

    async def _add(self, sql: AsyncConnection, event: UserEvent) -> None:
        if self._outbox is not None:
            await self._outbox.add(sql, "users", msgspec.to_builtins(event))


def _outbox(engine: AsyncEngine, store: Store) -> TransactionalOutbox:
    stream = store[USERS]

    async def send(_: str, event: dict[str, Any], number: int) -> None:
        decoded: UserEvent = msgspec.convert(event, UserEvent)
        await stream.publish(msgspec.structs.replace(decoded, number=number))

    return TransactionalOutbox(engine, store, outbox_events, send)


def _name(user: AnyRow) -> str:
    return f"{user.first_name} {user.last_name}".strip()
