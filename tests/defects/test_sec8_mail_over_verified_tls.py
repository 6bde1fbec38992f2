"""SEC8: `smtps://` accepted any certificate, and `smtp://` never used STARTTLS although it was offered."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from ephemera_services.runtime import InvalidSettings, MailFailed, Secret, SmtpTransport
from ephemera_services.scripture import Settings
from tests.wire.certificates import Authority

_PASSWORD = "canary-of-the-mail"


class _MailServer(socketserver.ThreadingTCPServer):
    """Speaks SMTP, over TLS from the start or by STARTTLS; notes what it reads, and if that was secret."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext, *, implicit: bool, offers: bool = True) -> None:
        self.context, self.implicit, self.offers = context, implicit, offers
        self.read: list[tuple[bool, bytes]] = []
        super().__init__(("127.0.0.1", 0), _Conversation)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is what these tests are about."""


class _Conversation(socketserver.BaseRequestHandler):
    server: _MailServer

    def handle(self) -> None:
        with ExitStack() as opened:
            self._converse(opened)

    def _converse(self, opened: ExitStack) -> None:
        def encrypted(plain: Any) -> Any:
            return opened.enter_context(self.server.context.wrap_socket(plain, server_side=True))

        secure = self.server.implicit
        line = encrypted(self.request) if secure else self.request
        stream = opened.enter_context(line.makefile("rb"))
        line.sendall(b"220 ready\r\n")
        while text := stream.readline():
            self.server.read.append((secure, text))
            match text[:4].upper():
                case b"EHLO":
                    offer = b"250-STARTTLS\r\n" if self.server.offers and not secure else b""
                    line.sendall(b"250-here\r\n" + offer + b"250 AUTH PLAIN\r\n")
                case b"STAR":
                    line.sendall(b"220 go on\r\n")
                    line, secure = encrypted(line), True
                    stream = opened.enter_context(line.makefile("rb"))
                case b"AUTH":
                    line.sendall(b"235 fine\r\n")
                case b"DATA":
                    line.sendall(b"354 go on\r\n")
                case b"QUIT":
                    line.sendall(b"221 bye\r\n")
                    return
                case b".\r\n":
                    line.sendall(b"250 taken\r\n")
                case b"MAIL" | b"RCPT":
                    line.sendall(b"250 fine\r\n")
                case _:
                    pass  # a line of the mail


@contextmanager
def _running(context: ssl.SSLContext, *, implicit: bool, offers: bool = True) -> Iterator[_MailServer]:
    with _MailServer(context, implicit=implicit, offers=offers) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """The authority that is trusted."""
    return Authority(tmp_path, "mail")


async def _send(server: _MailServer, ca: Path) -> bool:
    scheme = "smtps" if server.implicit else "smtp"
    url = f"{scheme}://ann:{_PASSWORD}@127.0.0.1:{server.server_address[1]}"
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.com", "b@example.com", "Hello"
    message.set_content("A text.")
    return await SmtpTransport(url, ca=str(ca)).send(message)


@pytest.mark.parametrize("implicit", [True, False])
async def test_sec8_mail_is_sent_over_verified_tls(authority: Authority, implicit: bool) -> None:
    """By both schemes; credentials and mail are only sent when the connection is encrypted."""
    with _running(authority.server_context("127.0.0.1"), implicit=implicit) as server:
        assert await _send(server, authority.ca)
    words = {text[:4].upper().strip() for secure, text in server.read if not secure}
    assert words <= {b"EHLO", b"STAR"}
    assert (True, b"Subject: Hello\r\n") in server.read


@pytest.mark.parametrize("implicit", [True, False])
@pytest.mark.parametrize("wrong", ["name", "authority", "expired"])
async def test_sec8_an_unverified_server_gets_nothing(
    authority: Authority, tmp_path: Path, implicit: bool, wrong: str
) -> None:
    """A certificate for another name, by another authority or of yesterday ends it before any credentials."""
    folder = tmp_path / "other"
    folder.mkdir()
    signer = Authority(folder, "other") if wrong == "authority" else authority
    host = "mail.example.com" if wrong == "name" else "127.0.0.1"
    context = signer.server_context(host, expired=wrong == "expired")
    with _running(context, implicit=implicit) as server:
        with pytest.raises(MailFailed):
            await _send(server, authority.ca)
    assert not any(text[:4] in (b"AUTH", b"MAIL", b"DATA") for _, text in server.read)


async def test_sec8_a_server_without_starttls_gets_nothing(authority: Authority) -> None:
    """Removing the offer, as an attacker on the network can, does not lead to plain text."""
    with _running(authority.server_context("127.0.0.1"), implicit=False, offers=False) as server:
        with pytest.raises(MailFailed):
            await _send(server, authority.ca)
    assert {text[:4].upper().strip() for _, text in server.read} <= {b"EHLO", b"QUIT"}


def test_sec8_plain_text_is_only_for_this_machine() -> None:
    """The setting is refused for any other host, and for `smtps://`."""
    Settings(mail_url=Secret("smtp://127.0.0.1:25"), mail_plaintext=True).check()
    for url in ("smtp://mail.example.com", "smtps://127.0.0.1"):
        with pytest.raises(InvalidSettings, match="MAIL_PLAINTEXT"):
            Settings(mail_url=Secret(url), mail_plaintext=True).check()
