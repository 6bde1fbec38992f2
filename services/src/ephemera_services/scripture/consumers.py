"""The event consumers: mails for notifications, a welcome and a history for users, caches for ingests.

Each group handles ten events at a time and acknowledges each when it is done. A failure is retried, and
finally becomes a dead letter (`ephemera events dead`, `ephemera events replay`). The events of a consumer
that died are claimed by others after ten seconds.

| stream | group | does |
|---|---|---|
| notifications | `notifications-workers` | sends the mail, once per key; pauses without a mail server |
| notifications | `notifications-push` | sends it to the user's browsers (`push`) |
| users | `users-welcome` | publishes a notification |
| users | `users-history` | does what identity did with a user and writes a row, exactly once (`OnceGuard`) |
| ingest | `content` | invalidates what the ingest changed, even if its process died before it could |
| ingest | `content-news` | publishes a notification for each user who wants it, once a day per translation |

Mails are sent by SMTP if a URL is configured, and otherwise only stored in the table `mails`. The table has
one row per key: a sent mail is not sent again, however often its event is delivered. If a process dies
between sending and recording it, it is sent twice, with the same Message-ID.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email import policy
from email.message import EmailMessage
from email.utils import formatdate
from hashlib import sha256
from typing import Any
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
from ephemera_services.scripture.notifications import Kind, NotificationPreferences, UnsubscribeLinks
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.push import PUSH_RETRIES, Push, PushFailed
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
        push: Push,
        choices: NotificationPreferences,
    ) -> None:
        self._engine = engine
        self._accounts = accounts
        self._notifications, self._users, self._ingests = store[NOTIFICATIONS], store[USERS], store[INGESTS]
        self._outbox = outbox
        self._mailer = mailer
        self._invalidation = invalidation
        self._push = push
        self._choices = choices

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Handle events and relay the outbox within a block."""
        async with AsyncExitStack() as stack:
            for consumer in (
                self._notifications.consume(
                    "notifications-workers", self._mailer.handle, on_error={MailServerDown: _PAUSE}
                ),
                self._notifications.consume(
                    "notifications-push", self._push.handle, on_error={PushFailed: PUSH_RETRIES}
                ),
                self._users.consume("users-welcome", self.welcome),
                self._users.consume("users-history", self.record_history),
                self._ingests.consume("content", self.invalidate),
                self._ingests.consume("content-news", self.announce),
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
        message = _notification(event.user_id, "account", key, user, subject, body)
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

    async def announce(self, event: ContentChanged, delivery: Delivery) -> None:
        """Notify users of new content, who want it: once a day for each translation."""
        day = datetime.fromtimestamp(int(delivery.origin.partition("-")[0]) / 1000, UTC).date()
        for translation in event.contents:
            news = f"content:{translation}:{day}"
            async with self._engine.begin() as sql:
                claimed = await sql.execute(text(ONCE.named), ONCE.values(delivery, event=news))
                if not ONCE.is_first(claimed.one_or_none()):
                    continue
                body = f"verses were added to {translation!r}, or removed."
                await self._notifications.publish_many(
                    _notification(str(user.id), "content", f"{news}:{user.id}", user, "New content", body)
                    for user in await self._choices.recipients(sql, "content")
                )


def _notification(user_id: str, kind: Kind, key: str, user: Any, subject: str, body: str) -> Notification:
    words = f"Dear {user.name},\n\n{body}\n"
    return Notification(key=key, to=user.email, subject=subject, text=words, user_id=user_id, kind=kind)


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


_UNFOLDED = policy.default.clone(max_line_length=998)
"""By default Python folds a long link by encoding it, which no mail reader takes for one."""
_ONE_CLICK = "List-Unsubscribe=One-Click"
_PAUSE = Pause(retry_after=timedelta(seconds=10), after=3)


class Mailer:
    """Handles notifications."""

    def __init__(
        self,
        engine: AsyncEngine,
        transport: MailTransport,
        sender: str,
        choices: NotificationPreferences,
        links: UnsubscribeLinks,
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._sender = sender
        self._choices = choices
        self._links = links

    async def handle(self, notification: Notification, _: Delivery) -> None:
        """Send a notification, unless it was sent or its user does not want it."""
        if not await self._is_wanted(notification) or await self._is_sent(notification):
            return
        if await self._transport.send(self._message(notification)):
            done = update(mails).where(mails.c.key == notification.key).values(sent_at=func.now())
            async with self._engine.begin() as sql:
                await sql.execute(done)

    async def _is_wanted(self, notification: Notification) -> bool:
        if not notification.user_id:
            return True
        return await self._choices.is_enabled(UUID(notification.user_id), notification.kind, "mail")

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
        message = EmailMessage(_UNFOLDED)
        message["From"], message["To"] = self._sender, notification.to
        message["Subject"], message["Date"] = notification.subject, formatdate()
        message["Message-ID"] = f"<{sha256(notification.key.encode()).hexdigest()[:32]}@scripture>"
        link = self._links.link(notification.user_id, notification.kind) if notification.user_id else None
        if link is None:
            message.set_content(notification.text)
            return message
        message["List-Unsubscribe"], message["List-Unsubscribe-Post"] = f"<{link}>", _ONE_CLICK
        message.set_content(f"{notification.text}\n-- \nNo more such mails: {link}\n")
        return message
