"""A mail server for tests: it speaks SMTP, stores the mails, and can delay its senders."""

from __future__ import annotations

import socketserver
import threading
from email import message_from_bytes
from email.message import Message
from types import TracebackType
from typing import Self


class MailServer:
    """Listens on a port of its own for the length of a block."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        """Mails that were acknowledged, or would have been if their sender still lived."""
        self.waiting = 0
        """Senders that were given no answer yet."""
        self.open = threading.Event()
        """Whether senders get their answer; otherwise they wait."""
        self.open.set()
        self.refuse = self.refused = 0
        """How many mails are refused at first, and how many were."""
        self._lock = threading.Lock()
        mails = self

        class Conversation(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                mails._converse(self)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Conversation)
        self._server.daemon_threads = True
        self.url = f"smtp://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open.set()
        self._server.shutdown()
        self._server.server_close()

    def recipients(self) -> list[str]:
        """To whom mails were taken."""
        with self._lock:
            return [str(each["To"]) for each in self.taken]

    def _converse(self, sender: socketserver.StreamRequestHandler) -> None:
        def say(line: str) -> None:
            sender.wfile.write(f"{line}\r\n".encode())

        say("220 ready")
        while line := sender.rfile.readline().strip().upper():
            if line.startswith(b"DATA"):
                say("354 go on")
                say("250 fine" if self._take(sender) else "451 not now")
                continue
            if line.startswith(b"QUIT"):
                say("221 bye")
                return
            say("250 fine")

    def _take(self, sender: socketserver.StreamRequestHandler) -> bool:
        lines = []
        while (line := sender.rfile.readline()).strip() != b".":
            lines.append(line)
        if self.refused < self.refuse:
            self.refused += 1
            return False
        with self._lock:
            self.waiting += 1
        self.open.wait(60)
        with self._lock:
            self.waiting -= 1
            self.taken.append(message_from_bytes(b"".join(lines)))
        return True
