"""Problem documents (RFC 9457): what every error of the web adapters looks like.

A `Problem` is an exception and an ASGI application: raise it below one of our middlewares, which sends it
when the response has not begun, or send it with `await problem(scope, receive, send)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ephemera.web._asgi import Header, Receive, Scope, Send

_UNDECIDED = "This cannot be done or decided at the moment; please try again."
_POLICY_VIOLATION, _TRY_AGAIN_LATER = 1008, 1013  # WebSocket close codes


class Problem(Exception):
    """An answer that says what went wrong, for people and for programs."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        type: str = "about:blank",  # noqa: A002 - the member's name in the RFC
        *,
        headers: Iterable[Header] = (),
        **extra: Any,
    ) -> None:
        super().__init__(f"{status} {title}: {detail}" if detail else f"{status} {title}")
        self.status = status
        self.headers = tuple(headers)
        self.document = {"type": type, "title": title, "status": status, "detail": detail, **extra}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Send it; a WebSocket that was not accepted yet is closed with the code that comes closest."""
        if scope["type"] == "websocket":
            code = _TRY_AGAIN_LATER if self.status in (429, 503) else _POLICY_VIOLATION
            await send({"type": "websocket.close", "code": code, "reason": self.document["title"]})
            return
        body = msgspec.json.encode(self.document)
        length = b"%d" % len(body)
        headers = [(b"content-type", b"application/problem+json"), (b"content-length", length), *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def unavailable(detail: str = _UNDECIDED, *, retry_after: int = 1) -> Problem:
    """503: what decides is away, and the same request may succeed in some seconds."""
    return Problem(503, "Service Unavailable", detail, headers=[(b"retry-after", b"%d" % retry_after)])
