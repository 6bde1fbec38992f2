"""Mails to users: codes to reset a password or to confirm an address, and notices of what changed.

A route only stores a request (`request`), in the transaction of its change or alone, and answers. A task in
every process does the rest: it looks the user up, creates a code, stores its digest, and hands the mail over.
So an answer takes the same time whether there is an account or not, no code is ever in SQL, and a mail server
that is down delays mails only: a request is repeated after 1, 2, 4 ... minutes, for a day.

A code is sent as the fragment of a link, which no browser sends to a server or to another page.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Literal
from uuid import UUID

from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera_services.identity.tables import AnyRow, mail_tokens, mails, users
from ephemera_services.runtime import MailFailed, MailTransport, cancel_and_wait

MailKind = Literal["registered", "verify", "reset", "change", "password_changed", "email_changed", "deleted"]
Purpose = Literal["verify", "reset", "change"]

_POLL_INTERVAL = 2.0  # seconds
_LEASE = text("interval '1 minute' * power(2, least(mails.attempts, 6))")
_LIFETIMES: dict[Purpose, timedelta] = {
    "verify": timedelta(days=1),
    "reset": timedelta(hours=1),
    "change": timedelta(hours=1),
}
_CODES: dict[Purpose, tuple[str, str]] = {
    "verify": ("Confirm your address", "To confirm that this address is yours"),
    "reset": ("Reset your password", "To choose a new password"),
    "change": ("Confirm your new address", "To use this address for your account from now on"),
}
_UNASKED = "If you did not ask for this, ignore this mail: nothing changes without it."
_NOTICES: dict[str, tuple[str, str]] = {
    "registered": (
        "You have an account already",
        "Someone, perhaps you, tried to register this address. Your account is as it was.",
    ),
    "password_changed": (
        "Your password was changed",
        "The password of your account was changed. If it was not you, reset it now.",
    ),
    "email_changed": (
        "Your address was changed",
        "Your account has another address from now on. If it was not you, contact us at once.",
    ),
    "deleted": ("Your account was deleted", "Your account and everything in it was deleted."),
}

logger = logging.getLogger(__name__)


def digest_of(code: str) -> str:
    """The digest of a code, as SQL has it."""
    return hashlib.sha256(code.encode()).hexdigest()


class Mailer:
    """Stores requests for mails, and sends them."""

    def __init__(
        self, engine: AsyncEngine, transport: MailTransport, sender: str, public_url: str | None
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._sender = sender
        self._public_url = None if public_url is None else public_url.rstrip("/")
        self._requested = asyncio.Event()

    async def request(
        self, sql: AsyncConnection, kind: MailKind, to: str, user_id: UUID | None = None
    ) -> None:
        """Add a request to a transaction; it is sent after the commit, and `wake` makes it soon."""
        await sql.execute(insert(mails).values(kind=kind, to=to, user_id=user_id))

    async def request_now(self, kind: MailKind, to: str) -> None:
        """Store a request to the user with an address, if there is one."""
        async with self._engine.begin() as sql:
            await self.request(sql, kind, to)
        self.wake()

    def wake(self) -> None:
        """Send what was committed without waiting for the next poll."""
        self._requested.set()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Send mails within a block."""
        task = asyncio.create_task(self._run(), name="identity-mailer")
        try:
            yield
        finally:
            await cancel_and_wait([task])

    async def _run(self) -> None:
        while True:
            self._requested.clear()
            try:
                while await self._send_next():
                    pass
            except (MailFailed, SQLAlchemyError, OSError) as problem:
                logger.warning("a mail waits", extra={"problem": type(problem).__name__})
            with suppress(TimeoutError):
                await asyncio.wait_for(self._requested.wait(), _POLL_INTERVAL)

    async def _send_next(self) -> bool:
        """Send the mail that is due; False if there is none."""
        async with self._engine.begin() as sql:
            row = await self._claim(sql)
            message = None if row is None else await self._compose(sql, row)
        if row is None:
            return False
        if message is not None:
            await self._transport.send(message)
        async with self._engine.begin() as sql:
            await sql.execute(delete(mails).where(mails.c.number == row.number))
        return True

    async def _claim(self, sql: AsyncConnection) -> AnyRow | None:
        """Claim a mail for a minute, or longer with each attempt."""
        due = select(mails.c.number).where(mails.c.next_at <= func.now()).order_by(mails.c.next_at).limit(1)
        claimed = update(mails).where(
            mails.c.number == due.with_for_update(skip_locked=True).scalar_subquery()
        )
        values = {"attempts": mails.c.attempts + 1, "next_at": func.now() + _LEASE}
        row: AnyRow | None = (await sql.execute(claimed.values(values).returning(mails))).one_or_none()
        return row

    async def _compose(self, sql: AsyncConnection, row: AnyRow) -> EmailMessage | None:
        """Write a mail; None if there is no address to send it to."""
        if row.kind in ("password_changed", "email_changed", "deleted"):
            return self._message(row.to, *_NOTICES[row.kind])
        user = await _find(sql, row)
        if user is None:
            return None
        match row.kind:
            case "change":
                return await self._code(sql, "change", user.id, row.to)
            case "reset":
                return await self._code(sql, "reset", user.id, user.email)
            case _ if user.email_verified_at is None:
                return await self._code(sql, "verify", user.id, user.email)
            case "registered":
                return self._message(user.email, *_NOTICES["registered"])
        return None

    async def _code(self, sql: AsyncConnection, purpose: Purpose, user_id: UUID, to: str) -> EmailMessage:
        """Write a mail with a new code, which replaces the last one for the same purpose."""
        code = secrets.token_urlsafe(32)
        lifetime = _LIFETIMES[purpose]
        values = {"digest": digest_of(code), "email": to, "expires_at": func.now() + lifetime}
        added = upsert(mail_tokens).values(user_id=user_id, purpose=purpose, **values)
        await sql.execute(added.on_conflict_do_update(index_elements=["user_id", "purpose"], set_=values))
        subject, aim = _CODES[purpose]
        how = "enter this code" if self._public_url is None else "open this link"
        what = code if self._public_url is None else f"{self._public_url}/#{purpose}={code}"
        hours = int(lifetime.total_seconds() // 3600)
        valid = f"It can be used once, within {hours} hour{'s' if hours > 1 else ''}."
        return self._message(to, subject, f"{aim}, {how}:\n\n{what}\n\n{valid}\n\n{_UNASKED}")

    def _message(self, to: str, subject: str, body: str) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self._sender, to, subject
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain="identity")
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(f"Hello,\n\n{body}\n", cte="7bit")
        return message


async def _find(sql: AsyncConnection, row: AnyRow) -> AnyRow | None:
    """The user that a mail is for, unless blocked."""
    mine = func.lower(users.c.email) == row.to.lower() if row.user_id is None else users.c.id == row.user_id
    query = select(users.c.id, users.c.email, users.c.email_verified_at).where(
        mine, users.c.blocked_at.is_(None)
    )
    return (await sql.execute(query)).one_or_none()
