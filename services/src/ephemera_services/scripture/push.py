"""Push notifications: the subscriptions of users' browsers, and the messages to them.

A browser's push service gives it a URL and keys, which it sends here. That URL is untrusted: it is called
only if it is public (`OutboundRequests`), and a user has at most ten; the oldest is replaced. One that no
longer exists (404, 410) is deleted. After other failures a message is sent again, five times in all, and then
dropped: the same text goes by mail, if the user wants it. A message that is sent again has the same topic and
tag, so that a browser shows it once.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec
from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import EphemeraError
from ephemera.patterns.events import Delivery, Redeliver
from ephemera_services.runtime import OutboundFailed, OutboundRequests, advisory_lock, problem
from ephemera_services.scripture.events import Notification
from ephemera_services.scripture.notifications import NotificationPreferences, unknown_account
from ephemera_services.scripture.push_messages import PushMessages, is_public_key
from ephemera_services.scripture.tables import push_subscriptions

PUSH_RETRIES = Redeliver(first=timedelta(seconds=2), longest=timedelta(minutes=10))
_MAX_SUBSCRIPTIONS = 10  # of a user
_ATTEMPTS = 5
_GONE = (404, 410)
_c = push_subscriptions.c

logger = logging.getLogger(__name__)


class PushFailed(EphemeraError):
    """A push service did not take a message."""


class Push:
    """Subscriptions and messages; without a key every call is refused, and nothing is sent."""

    def __init__(
        self,
        engine: AsyncEngine,
        preferences: NotificationPreferences,
        messages: PushMessages | None,
        *,
        anywhere: bool,
    ) -> None:
        self._engine = engine
        self._preferences = preferences
        self._messages = messages
        self._requests = OutboundRequests(anywhere=anywhere)
        self.aclose = self._requests.aclose

    def public_key(self) -> str:
        """The key that browsers subscribe with; 404 if push is not configured."""
        return self._configured().public_key

    async def subscribe(self, user_id: UUID, endpoint: str, p256dh: str, auth: str) -> UUID:
        """Store a subscription and return its id, the same for the same endpoint."""
        self._configured()
        await self._check(endpoint, p256dh)
        subscription_id = uuid5(NAMESPACE_URL, endpoint)
        row = {
            "id": subscription_id,
            "user_id": user_id,
            "endpoint": endpoint,
            "p256dh": p256dh,
            "auth": auth,
        }
        added = insert(push_subscriptions).values(row)
        same = added.on_conflict_do_update(  # another user of a browser, which proves it by its secret
            index_elements=["id"],
            set_={"user_id": user_id, "p256dh": p256dh, "auth": auth, "created_at": func.now()},
            where=or_(_c.user_id == user_id, _c.auth == auth),
        )
        newest = select(_c.id).where(_c.user_id == user_id, _c.id != subscription_id)
        kept = newest.order_by(_c.created_at.desc(), _c.id).limit(_MAX_SUBSCRIPTIONS - 1)
        others = delete(push_subscriptions).where(_c.user_id == user_id, _c.id != subscription_id)
        try:
            async with self._engine.begin() as sql:
                await advisory_lock(sql, f"push subscriptions of {user_id}")
                if (await sql.execute(same.returning(_c.id))).one_or_none() is None:
                    raise problem(409, "This subscription is another user's.")
                await sql.execute(others.where(_c.id.not_in(kept)))
        except IntegrityError:
            raise unknown_account() from None
        return subscription_id

    async def unsubscribe(self, user_id: UUID, subscription_id: UUID) -> None:
        """Delete a subscription; 404 if the user has no such one."""
        gone = delete(push_subscriptions).where(_c.id == subscription_id, _c.user_id == user_id)
        async with self._engine.begin() as sql:
            if not (await sql.execute(gone)).rowcount:
                raise problem(404, "You have no such subscription.")

    async def handle(self, notification: Notification, delivery: Delivery) -> None:
        """Send a notification to the browsers of its user that did not get it yet."""
        if self._messages is None or not notification.user_id:
            return
        user_id = UUID(notification.user_id)
        if not await self._preferences.is_enabled(user_id, notification.kind, "push"):
            return
        due = or_(_c.last_key.is_(None), _c.last_key != notification.key)
        async with self._engine.connect() as sql:
            query = select(push_subscriptions).where(_c.user_id == user_id, due)
            rows = (await sql.execute(query)).all()
        finished = await asyncio.gather(*(self._send(self._messages, row, notification) for row in rows))
        if not all(finished) and delivery.attempt < _ATTEMPTS:
            raise PushFailed(f"{finished.count(False)} of {len(finished)} push services did not take it")

    async def _send(self, messages: PushMessages, row: Any, notification: Notification) -> bool:
        """Send one message; whether that is finished, for better or worse."""
        payload, topic = _payload(notification)
        created = asyncio.to_thread(messages.create, row.endpoint, row.p256dh, row.auth, payload, topic)
        try:
            status = await self._requests.post(row.endpoint, *(await created))
        except OutboundFailed as failed:
            logger.warning("push to subscription %s: %s", row.id, str(failed).partition(":")[0])
            return False
        if status in _GONE:
            await self._write(delete(push_subscriptions), row)
        elif 200 <= status < 300:
            await self._write(update(push_subscriptions).values(last_key=notification.key), row)
        else:
            logger.warning("push to subscription %s: the push service answered %d", row.id, status)
            return status != 429 and status < 500
        return True

    async def _write(self, statement: Any, row: Any) -> None:
        async with self._engine.begin() as sql:
            await sql.execute(statement.where(_c.id == row.id, _c.auth == row.auth))

    def _configured(self) -> PushMessages:
        if self._messages is None:
            raise problem(404, "Push notifications are not configured: the service has no VAPID key.")
        return self._messages

    async def _check(self, endpoint: str, p256dh: str) -> None:
        self._requests.check(endpoint, "a push service")
        if not is_public_key(p256dh):
            raise problem(422, "The key p256dh is not a point on the curve P-256.")
        try:
            await self._requests.resolve(endpoint)
        except (OSError, ValueError):
            raise problem(422, "The push service has no known public address.") from None


def _payload(notification: Notification) -> tuple[bytes, str]:
    """What the browser's service worker gets, and the topic: one for each notification."""
    digest = sha256(notification.key.encode()).digest()
    topic = base64.urlsafe_b64encode(digest[:24]).decode()
    payload = {
        "title": notification.subject[:100],
        "body": notification.text[:600],
        "kind": notification.kind,
        "tag": topic,
    }
    return msgspec.json.encode(payload), topic
