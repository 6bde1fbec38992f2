"""Requests to ASGI applications with arbitrary bytes as headers, as a server passes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ephemera.web import ASGIApp, Header, Message


class Answer(NamedTuple):
    """A response."""

    status: int
    pairs: list[Header]
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of a header."""
        return [value for each, value in self.pairs if each.lower() == name]


async def request(
    app: ASGIApp, path: str, headers: Iterable[Header] = (), method: str = "GET", **more: Any
) -> Answer:
    """Send a request to an application; an exception is one that a client would see as 500."""
    sent: list[Message] = []
    is_sent = False

    async def receive() -> Message:
        nonlocal is_sent
        if is_sent:
            return {"type": "http.disconnect"}
        is_sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    target, _, query = path.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "https",
        "path": target,
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": list(headers),
        "client": ("10.0.0.1", 40_000),
        "server": ("test", 443),
        "state": {},
        **more,
    }
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], list(sent[0].get("headers", ())), body)
