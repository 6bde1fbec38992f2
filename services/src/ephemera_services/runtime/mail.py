"""Mails: handed to a mail server over TLS, or written to a folder where there is none.

`SmtpTransport` is for production, `MailFolder` for development and tests, and `NoMailServer` for services
that store their mails themselves. Errors never repeat what the server said: it may name the recipient.
"""

from __future__ import annotations

import asyncio
import os
import smtplib
import ssl
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from ephemera.errors import EphemeraError
from ephemera_services.runtime.settings import Secret

_TIMEOUT = 10.0  # seconds
_PORTS = {"smtp": 25, "smtps": 465}


class MailFailed(EphemeraError):
    """The mail server refused a mail; without its message, which may name the recipient."""


class MailServerDown(MailFailed):
    """The mail server cannot be reached, or hung up."""


class MailTransport(Protocol):
    """Sends mails."""

    name: str

    async def send(self, message: EmailMessage) -> bool:
        """Send a mail, or raise; False if it is only stored."""


class NoMailServer:
    """Sends nothing: mails stay in the table."""

    name = "outbox"

    async def send(self, message: EmailMessage) -> bool:  # noqa: ARG002 - the protocol's
        """Do nothing: the table has it."""
        return False


class MailFolder:
    """Writes each mail to a file `*.eml` that only this user can read, for development and tests."""

    name = "folder"

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def send(self, message: EmailMessage) -> bool:
        """Write a mail; a reader of the folder sees it whole or not at all."""
        await asyncio.to_thread(self._write, message)
        return True

    def _write(self, message: EmailMessage) -> None:
        unfinished = self._folder / f".{uuid4().hex}"
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(bytes(message))
        unfinished.rename(self._folder / f"{uuid4().hex}.eml")


class SmtpTransport:
    """A mail server, always over TLS with a verified certificate and name.

    `smtps://` begins with TLS, `smtp://` changes to it (STARTTLS) before anything else is sent, and a server
    that does not offer that is refused. `ca` is a file with the authorities to trust, by default those of the
    system. With `plaintext` there is no TLS, for a relay on this machine.
    """

    name = "smtp"

    def __init__(self, url: str, *, ca: str | None = None, plaintext: bool = False) -> None:
        parts = urlsplit(url)
        self._context = None if plaintext else ssl.create_default_context(cafile=ca)
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
        except OSError as problem:  # SMTP's own errors are among them
            down = isinstance(problem, smtplib.SMTPServerDisconnected) or not isinstance(
                problem, smtplib.SMTPException
            )
            kind = MailServerDown if down else MailFailed
            raise kind(f"the mail server is unavailable: {type(problem).__name__}") from None
        return True

    def _send(self, message: EmailMessage) -> None:
        with self._connect() as server:
            if self._user:
                server.login(self._user, self._password)
            server.send_message(message)

    def _connect(self) -> smtplib.SMTP:
        if self._tls:
            return smtplib.SMTP_SSL(self._host, self._port, timeout=_TIMEOUT, context=self._context)
        server = smtplib.SMTP(self._host, self._port, timeout=_TIMEOUT)
        try:
            if self._context is not None:
                server.starttls(context=self._context)  # EHLO first; raises if it is not offered
        except BaseException:
            server.close()
            raise
        return server


def mail_problems(url: Secret | None, ca: str | None, *, plaintext: bool) -> Iterator[tuple[str, str]]:
    """What is wrong with the settings of a mail server: the setting's name, and the problem."""
    if url is not None and not url.reveal().startswith(("smtp://", "smtps://")):
        yield "MAIL_URL", "it must begin with smtp:// or smtps://"
    elif plaintext and not _is_local_smtp(url):
        yield "MAIL_PLAINTEXT", "without TLS mails are only sent to smtp://127.0.0.1, ::1 or localhost"
    if ca is not None and not Path(ca).is_file():
        yield "MAIL_CA", "it is not an existing file"


def _is_local_smtp(url: Secret | None) -> bool:
    parts = urlsplit("" if url is None else url.reveal())
    return parts.scheme == "smtp" and parts.hostname in ("127.0.0.1", "::1", "localhost")
