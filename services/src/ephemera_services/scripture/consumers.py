"""The event consumers: mails for notifications, a welcome and a history for users, caches for ingests.

Each group handles ten events at a time and acknowledges each when it is done. A failure is retried, and
finally becomes a dead letter (`ephemera events dead`, `ephemera events replay`). The events of a consumer
that died are claimed by others after ten seconds.

| stream | group | does |
|---|---|---|
| notifications | `notifications-workers` | sends the mail, once per key; pauses without a mail server |
| users | `users-welcome` | publishes a notification |
| users | `users-history` | does what identity did with a user and writes a row, exactly once (`OnceGuard`) |
| ingest | `content` | invalidates what the ingest changed, also if its process died before it could |

Mails are sent by SMTP if a URL is configured, and otherwise only stored in the table `mails`. The table has
one row per key: a sent mail is not sent again, however often its event is delivered. If a process dies
between sending and recording it, it is sent twice, with the same Message-ID.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from email.message import EmailMessage
from email.utils import formatdate
from hashlib import sha256
from uuid import UUID

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.patterns.events import Delivery, Pause
from ephemera_services.runtime import (
    MailServerDown,
    MailTransport,
    UserChanged,
    UserCreated,
    UserEvent,
    UserRoleChanged,
    UserUpdated,
)
from ephemera_services.scripture.events import ContentChanged, Notification
from ephemera_services.scripture.invalidation import Invalidation
from ephemera_services.scripture.keys import INGESTS, NOTIFICATIONS, USERS
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.tables import ONCE, mails, user_history, users
from ephemera_services.scripture.users import Users


class UnknownUser(Exception):
    """An event about a user that SQL does not have, perhaps not yet."""


class Consumers:
    """The handlers of one process."""

    def __init__(
        self,
        engine: AsyncEngine,
        store: Store,
        accounts: Users,
        outbox: Outbox,
        mailer: Mailer,
        invalidation: Invalidation,
    ) -> None:
        self._engine = engine
        self._accounts = accounts
        self._notifications, self._users, self._ingests = store[NOTIFICATIONS], store[USERS], store[INGESTS]
        self._outbox = outbox
        self._mailer = mailer
        self._invalidation = invalidation

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Handle events and relay the outbox within a block."""
        async with AsyncExitStack() as stack:
            for consumer in (
                self._notifications.consume(
                    "notifications-workers", self._mailer.handle, on_error={MailServerDown: _PAUSE}
                ),
                self._users.consume("users-welcome", self.welcome),
                self._users.consume("users-history", self.record_history),
                self._ingests.consume("content", self.invalidate),
            ):
                await stack.enter_async_context(consumer)
            await stack.enter_async_context(self._outbox.relay())
            yield

    async def welcome(self, event: UserEvent, delivery: Delivery) -> None:
        """Notify a user of what happened to their account here; identity notifies of the rest."""
        if not isinstance(event, UserCreated | UserChanged):
            return
        try:
            query = select(users.c.email, users.c.name).where(users.c.id == UUID(event.user_id))
        except ValueError:
            raise UnknownUser(f"there is no user {event.user_id}") from None
        async with self._engine.connect() as sql:
            user = (await sql.execute(query)).one_or_none()
        if user is None:
            raise UnknownUser(f"there is no user {event.user_id}")
        match event:
            case UserCreated():
                key, subject = f"welcome:{event.user_id}", "Welcome"
                body = "your account is ready."
            case UserChanged():
                key, subject = f"plan:{event.user_id}:{_event_name(event) or delivery.origin}", "Your plan"
                body = f"your plan is {event.plan!r} now."
        message = Notification(key=key, to=user.email, subject=subject, text=f"Dear {user.name},\n\n{body}\n")
        await self._notifications.publish(message)

    async def record_history(self, event: UserEvent, delivery: Delivery) -> None:
        """Do with a user what identity did, and record it, exactly once."""
        async with self._engine.begin() as sql:
            claimed = await sql.execute(text(ONCE.named), ONCE.values(delivery, event=_event_name(event)))
            if ONCE.is_first(claimed.one_or_none()):
                await self._accounts.follow(sql, event)
                await sql.execute(insert(user_history).values(user_id=event.user_id, what=_what(event)))

    async def invalidate(self, event: ContentChanged, _: Delivery) -> None:
        """Invalidate what an ingest changed in every cache."""
        await self._invalidation.apply(event)


def _event_name(event: UserEvent) -> str | None:
    """The stable name of an event, however often it is published; None for events without a number."""
    return f"{event.source}-{event.number}" if event.number else None


def _what(event: UserEvent) -> str:
    match event:
        case UserCreated():
            return "created"
        case UserChanged():
            return f"plan {event.plan}"
        case UserRoleChanged():
            return f"role {event.role}"
        case UserUpdated():
            return "updated"
    return "deleted"


_PAUSE = Pause(retry_after=timedelta(seconds=10), after=3)


class Mailer:
    """Handles notifications."""

    def __init__(self, engine: AsyncEngine, transport: MailTransport, sender: str) -> None:
        self._engine = engine
        self._transport = transport
        self._sender = sender

    async def handle(self, notification: Notification, _: Delivery) -> None:
        """Send a notification, unless it was sent."""
        if await self._is_sent(notification):
            return
        if await self._transport.send(self._message(notification)):
            done = update(mails).where(mails.c.key == notification.key).values(sent_at=func.now())
            async with self._engine.begin() as sql:
                await sql.execute(done)

    async def _is_sent(self, notification: Notification) -> bool:
        row = {
            "key": notification.key,
            "to": notification.to,
            "subject": notification.subject,
            "text": notification.text,
            "transport": self._transport.name,
        }
        async with self._engine.begin() as sql:
            await sql.execute(upsert(mails).values(row).on_conflict_do_nothing())
            sent = await sql.execute(select(mails.c.sent_at).where(mails.c.key == notification.key))
            return sent.scalar_one() is not None

    def _message(self, notification: Notification) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self._sender, notification.to
        message["Subject"], message["Date"] = notification.subject, formatdate()
        message["Message-ID"] = f"<{sha256(notification.key.encode()).hexdigest()[:32]}@scripture>"
        message.set_content(notification.text)
        return message
