"""Who hears events: mails for notifications, a welcome and a history for users, caches for ingests.

Ten events at a time in each group, each acknowledged when it is handled; what fails is tried again, and is a
dead letter at last (`ephemera events dead`, `ephemera events replay`). A consumer that died is known after
ten seconds of silence, and its events are taken over.

| stream | group | does |
|---|---|---|
| notifications | `notifications-workers` | sends the mail, once for each key |
| users | `users-welcome` | has the user notified |
| users | `users-history` | writes a row, exactly once (`OnceGuard`) |
| ingest | `content` | ends what the ingest changed in every cache, also if its process died before it could |
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

from sqlalchemy import insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.patterns.events import Delivery
from ephemera_services.scripture.events import ContentChanged, Notification, UserChanged, UserCreated
from ephemera_services.scripture.invalidation import Invalidation
from ephemera_services.scripture.keys import INGESTS, NOTIFICATIONS, USERS
from ephemera_services.scripture.mail import Mailer
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.tables import ONCE, user_history, users


class UserUnknown(Exception):
    """An event about a user whom SQL does not have, perhaps not yet."""


class Consumers:
    """The handlers of one process."""

    def __init__(
        self, engine: AsyncEngine, store: Store, outbox: Outbox, mailer: Mailer, invalidation: Invalidation
    ) -> None:
        self._engine = engine
        self._notifications, self._users, self._ingests = store[NOTIFICATIONS], store[USERS], store[INGESTS]
        self._outbox = outbox
        self._mailer = mailer
        self._invalidation = invalidation

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Handle events, and publish those that were left behind, while the block lasts."""
        async with AsyncExitStack() as stack:
            for consumer in (
                self._notifications.consume("notifications-workers", self._mailer.handle),
                self._users.consume("users-welcome", self.welcome),
                self._users.consume("users-history", self.remember),
                self._ingests.consume("content", self.forget),
            ):
                await stack.enter_async_context(consumer)
            await stack.enter_async_context(self._outbox.relaying())
            yield

    async def welcome(self, event: UserCreated | UserChanged, delivery: Delivery) -> None:
        """Have a user notified of what happened to them."""
        async with self._engine.connect() as sql:
            wanted = select(users.c.email, users.c.name).where(users.c.id == UUID(event.user_id))
            user = (await sql.execute(wanted)).one_or_none()
        if user is None:
            raise UserUnknown(f"there is no user {event.user_id}")
        match event:
            case UserCreated():
                key, subject = f"welcome:{event.user_id}", "Welcome"
                words = "it is good to have you here."
            case UserChanged():
                key, subject = f"plan:{event.user_id}:{_named(event) or delivery.origin}", "Your plan"
                words = f"your plan is {event.plan!r} now."
        message = Notification(
            key=key, to=user.email, subject=subject, text=f"Dear {user.name},\n\n{words}\n"
        )
        await self._notifications.publish(message)

    async def remember(self, event: UserCreated | UserChanged, delivery: Delivery) -> None:
        """Write what happened to a user into their history, once."""
        what = "created" if isinstance(event, UserCreated) else f"plan {event.plan}"
        async with self._engine.begin() as sql:
            claimed = await sql.execute(text(ONCE.named), ONCE.values(delivery, event=_named(event)))
            if ONCE.is_first(claimed.one_or_none()):
                await sql.execute(insert(user_history).values(user_id=event.user_id, what=what))

    async def forget(self, event: ContentChanged, _: Delivery) -> None:
        """End what an ingest changed in every cache."""
        await self._invalidation.apply(event)


def _named(event: UserCreated | UserChanged) -> str | None:
    """The name of an event, however often it was published; None of one from before it had one."""
    return f"outbox-{event.number}" if event.number else None
