"""The types of ASGI, and problem documents (RFC 9457): the form of every error of this package.

A `Problem` is an exception and an ASGI application: raise it below one of our middlewares, which sends it if
the response has not started, or send it with `await problem(scope, receive, send)`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

import msgspec

Scope: TypeAlias = MutableMapping[str, Any]
"""An ASGI connection scope."""
Message: TypeAlias = MutableMapping[str, Any]
"""An ASGI message."""
Receive: TypeAlias = Callable[[], Awaitable[Message]]
"""The function that receives the next ASGI message."""
Send: TypeAlias = Callable[[Message], Awaitable[None]]
"""The function that sends an ASGI message."""
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI application."""
Header: TypeAlias = tuple[bytes, bytes]
"""A header of an ASGI message: its lower-case name and its value."""

RESPONSE_STARTS = frozenset(("http.response.start", "websocket.accept", "websocket.http.response.start"))
"""The types of messages that start a response, and may carry headers."""

_POLICY_VIOLATION, _TRY_AGAIN_LATER = 1008, 1013  # WebSocket close codes
_log = logging.getLogger(__name__)


class Problem(Exception):
    """A response that says what went wrong, for people and for programs."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        type_uri: str = "about:blank",
        *,
        headers: Iterable[Header] = (),
        **extra: Any,
    ) -> None:
        super().__init__(f"{status} {title}: {detail}" if detail else f"{status} {title}")
        self.status = status
        self.headers = tuple(headers)
        self.document = {"type": type_uri, "title": title, "status": status, "detail": detail, **extra}

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it; a WebSocket that was not accepted yet is closed with the closest code."""
        if scope["type"] == "websocket":
            code = _TRY_AGAIN_LATER if self.status in (429, 503) else _POLICY_VIOLATION
            await send({"type": "websocket.close", "code": code, "reason": self.document["title"]})
            return
        headers = [(b"content-type", b"application/problem+json"), *self.headers]
        await send_response(send, self.status, headers, msgspec.json.encode(self.document))


def unavailable(
    detail: str = "This is not possible at the moment; please try again.", *, retry_after: int = 1
) -> Problem:
    """503: a server is down, and the same request may succeed in some seconds.

    `retry_after` is in seconds.
    """
    return Problem(503, "Service Unavailable", detail, headers=[(b"retry-after", b"%d" % retry_after)])


def unavailable_because(reason: Exception) -> Problem:
    """503, and the reason in the log: clients do not learn which server is down."""
    _log.warning("answered with 503: %s: %s", type(reason).__name__, reason)
    return unavailable()


async def send_response(
    send: Send, status: int, headers: Iterable[Header], body: bytes, *, head: bool = False
) -> None:
    """Send a whole response with its length; for a HEAD request without its body."""
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
