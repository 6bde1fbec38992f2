"""What users are notified of, and by which channel; and signed links that end mails.

A notification has a kind: `account` for changes of an account here, `content` for new verses, once a day for
each translation. Each kind is switched on or off for each channel, mail and push. Only what differs from the
defaults is stored; new content is off until a user wants it.

*Links.* Mails have a link that switches their kind off without a sign-in, as do their `List-Unsubscribe`
and `List-Unsubscribe-Post`, so that mail readers show a button (RFC 8058). Its token names a user and a
kind and is signed with EPHEMERA_SCRIPTURE_UNSUBSCRIBE_KEY; it does not expire, and is good for nothing
else. Opening the link only shows a page, because mail scanners open links; its button, as the mail
reader's, sends POST.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.web import Problem
from ephemera_services.runtime import Secret, problem
from ephemera_services.scripture.tables import notification_preferences, users

Kind = Literal["account", "content"]
Channel = Literal["mail", "push"]
Choices = dict[str, dict[str, bool]]
"""Whether a kind is switched on, by channel, by kind."""

DEFAULTS: Choices = {"account": {"mail": True, "push": True}, "content": {"mail": False, "push": False}}
TOKEN = r"^[0-9a-f]{32}\.[a-z]{1,20}\.[A-Za-z0-9_-]{43}$"  # noqa: S105 - a pattern

_c = notification_preferences.c


class NotificationPreferences:
    """The choices of all users."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def get(self, user_id: UUID) -> Choices:
        """A user's choices."""
        choices = {kind: dict(channels) for kind, channels in DEFAULTS.items()}
        query = select(_c.kind, _c.channel, _c.enabled).where(_c.user_id == user_id)
        async with self._engine.connect() as sql:
            for kind, channel, enabled in await sql.execute(query):
                if channel in choices.get(kind, ()):
                    choices[kind][channel] = enabled
        return choices

    async def is_enabled(self, user_id: UUID, kind: str, channel: Channel) -> bool:
        """Whether a user wants notifications of a kind by a channel; never of an unknown kind."""
        return (await self.get(user_id)).get(kind, {}).get(channel, False)

    async def replace(self, user_id: UUID, choices: Choices) -> None:
        """Store a user's choices; 409 for a user that SQL does not have yet."""
        rows = [
            {"user_id": user_id, "kind": kind, "channel": channel, "enabled": enabled}
            for kind, channels in choices.items()
            for channel, enabled in channels.items()
        ]
        added = insert(notification_preferences).values(rows)
        changed = added.on_conflict_do_update(
            index_elements=["user_id", "kind", "channel"], set_={"enabled": added.excluded.enabled}
        )
        try:
            async with self._engine.begin() as sql:
                await sql.execute(changed)
        except IntegrityError:
            raise unknown_account() from None

    async def end_mails(self, unsubscription: Unsubscription) -> None:
        """Switch mails of a kind off; of a user who was deleted there is nothing to switch off."""
        user_id, kind = unsubscription
        try:
            await self.replace(user_id, {kind: {"mail": False}})
        except Problem:
            return

    async def recipients(self, sql: AsyncConnection, kind: Kind) -> Sequence[Any]:
        """The users who switched a kind on that is off by default, for any channel."""
        wanted = select(_c.user_id).where(_c.kind == kind, _c.enabled)
        query = select(users.c.id, users.c.email, users.c.name).where(users.c.id.in_(wanted))
        return (await sql.execute(query)).all()


def unknown_account() -> Problem:
    """The 409 for a user with a token whom the service does not know, perhaps not yet."""
    return problem(409, "Your account is not known here yet: try again in a moment.")


class Unsubscription(NamedTuple):
    """What a token is for: no more mails of a kind to a user."""

    user_id: UUID
    kind: str


class UnsubscribeLinks:
    """Creates and reads links; without a key or an address mails have none."""

    def __init__(self, key: Secret | None, public_url: str | None) -> None:
        self._key = None if key is None or public_url is None else key.reveal().encode()
        self._url = f"{(public_url or '').rstrip('/')}/unsubscribe?token="

    def link(self, user_id: str, kind: str) -> str | None:
        """The link that ends mails of a kind."""
        if self._key is None:
            return None
        named = f"{UUID(user_id).hex}.{kind}"
        return f"{self._url}{named}.{_signature(self._key, named)}"

    def read(self, token: str) -> Unsubscription:
        """What a token is for; 404 unless it is one of ours."""
        named, _, signature = token.rpartition(".")
        user_id, _, kind = named.partition(".")
        known = self._key is not None and hmac.compare_digest(_signature(self._key, named), signature)
        if not known or kind not in DEFAULTS:
            raise problem(404, "This link is not valid.")
        return Unsubscription(UUID(user_id), kind)


def _signature(key: bytes, named: str) -> str:
    signed = hmac.new(key, f"scripture unsubscribe: {named}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(signed).decode().rstrip("=")
