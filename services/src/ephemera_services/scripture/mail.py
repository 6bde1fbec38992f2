"""Mails through a port: SMTP by URL, or none, and then they stay in the table `mails` for whoever looks.

A notification has a key, and the table one row for each: what was sent is not sent again, however often its
event comes. A process that dies between sending and noting it sends twice, with the same Message-ID.
"""

from __future__ import annotations

import asyncio
import smtplib
from email.message import EmailMessage
from email.utils import formatdate
from hashlib import sha256
from typing import Protocol
from urllib.parse import unquote, urlsplit

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import EphemeraError
from ephemera.patterns.events import Delivery
from ephemera_services.scripture.events import Notification
from ephemera_services.scripture.tables import mails

_PATIENCE = 10.0  # seconds
_PORTS = {"smtp": 25, "smtps": 465}


class MailFailed(EphemeraError):
    """A mail that the server did not take; without the server's words, which may name the recipient."""


class Carrier(Protocol):
    """Carries mails."""

    name: str

    async def send(self, message: EmailMessage) -> bool:
        """Send a mail, or raise; False: it stays where it is."""


class Nobody:
    """Leaves mails in the outbox."""

    name = "outbox"

    async def send(self, message: EmailMessage) -> bool:  # noqa: ARG002 - the port's
        """Nothing: the table has it."""
        return False


class Smtp:
    """A mail server: `smtp://` with STARTTLS where it is offered, `smtps://` for TLS from the start."""

    name = "smtp"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "localhost", parts.port or _PORTS[parts.scheme]
        self._user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")
        self._tls = parts.scheme == "smtps"

    async def send(self, message: EmailMessage) -> bool:
        """Hand a mail to the server, or raise `MailFailed`."""
        try:
            await asyncio.to_thread(self._send, message)
        except smtplib.SMTPResponseException as refused:
            raise MailFailed(f"the mail server answered {refused.smtp_code}") from None
        except OSError as problem:  # SMTP's other errors are among these
            raise MailFailed(f"the mail server could not be used: {type(problem).__name__}") from None
        return True

    def _send(self, message: EmailMessage) -> None:
        kind = smtplib.SMTP_SSL if self._tls else smtplib.SMTP
        with kind(self._host, self._port, timeout=_PATIENCE) as server:
            if not self._tls and server.has_extn("starttls"):
                server.starttls()
            if self._user:
                server.login(self._user, self._password)
            server.send_message(message)


class Mailer:
    """Handles notifications."""

    def __init__(self, engine: AsyncEngine, carrier: Carrier, sender: str) -> None:
        self._engine = engine
        self._carrier = carrier
        self._sender = sender

    async def handle(self, notification: Notification, _: Delivery) -> None:
        """Send a notification, unless it was."""
        if await self._is_sent(notification):
            return
        if await self._carrier.send(self._message(notification)):
            done = update(mails).where(mails.c.key == notification.key).values(sent_at=func.now())
            async with self._engine.begin() as sql:
                await sql.execute(done)

    async def _is_sent(self, notification: Notification) -> bool:
        row = {
            "key": notification.key,
            "to": notification.to,
            "subject": notification.subject,
            "text": notification.text,
            "carrier": self._carrier.name,
        }
        async with self._engine.begin() as sql:
            await sql.execute(insert(mails).values(row).on_conflict_do_nothing())
            sent = await sql.execute(select(mails.c.sent_at).where(mails.c.key == notification.key))
            return sent.scalar_one() is not None

    def _message(self, notification: Notification) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self._sender, notification.to
        message["Subject"], message["Date"] = notification.subject, formatdate()
        message["Message-ID"] = f"<{sha256(notification.key.encode()).hexdigest()[:32]}@scripture>"
        message.set_content(notification.text)
        return message
