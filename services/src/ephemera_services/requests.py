"""The outermost middleware: an id for each request, one log line when it is over, and no error unanswered.

The id is the caller's `X-Request-ID` if it is a plain word of at most 64 characters, a new one otherwise. The
response carries it, and so does every line that is logged meanwhile. The line at the end says method, route,
status and milliseconds: the route's *pattern*, because paths may hold secrets. What no handler took is
logged and answered with a 500 that gives the id, so that a user's complaint leads to the line.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable
from itertools import count

from ephemera.web._asgi import ASGIApp, Header, Message, Receive, Scope, Send
from ephemera.web._problems import Problem
from ephemera_services.logs import REQUEST_ID

_HEADER = b"x-request-id"
_PLAIN = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROCESS = os.urandom(8).hex()
_numbers = count()
_STARTS = frozenset(("http.response.start", "websocket.accept"))

logger = logging.getLogger("ephemera_services.requests")


class Requests:
    """Serves each request under its id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        request_id = _given(scope["headers"]) or f"{_PROCESS}{next(_numbers):08x}"
        token = REQUEST_ID.set(request_id)
        answer = _Answer(send, (_HEADER, request_id.encode()))
        began = time.perf_counter()
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            logger.exception("unexpected")
            if answer.status:
                raise
            detail = f"Something went wrong here, and was logged as {request_id}."
            await Problem(500, "Internal Server Error", detail)(scope, receive, answer.send)
        finally:
            if logger.isEnabledFor(logging.INFO):
                _log(scope, answer.status, time.perf_counter() - began)
            REQUEST_ID.reset(token)


class _Answer:
    """Passes an answer on, with one header more, and notes its status."""

    __slots__ = ("_header", "_send", "status")

    def __init__(self, send: Send, header: Header) -> None:
        self._send = send
        self._header = header
        self.status = 0

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] in _STARTS:
            self.status = message.get("status", 101)
            message["headers"] = [*message.get("headers", ()), self._header]
        return self._send(message)


def _given(headers: list[Header]) -> str | None:
    for name, value in headers:
        if name == _HEADER:
            return value.decode() if _PLAIN.fullmatch(value) else None
    return None


def _log(scope: Scope, status: int, seconds: float) -> None:
    route = scope.get("route")
    logger.info(
        "request",
        extra={
            "method": scope.get("method", "WEBSOCKET"),
            "route": None if route is None else scope.get("root_path", "") + route.path,
            "status": status,
            "ms": round(seconds * 1000, 2),
        },
    )
