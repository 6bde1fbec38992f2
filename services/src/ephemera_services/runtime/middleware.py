"""Request ids and logging: the outermost middleware of every service.

*Request ids.* The id is the caller's `X-Request-ID` if it is at most 64 letters, digits, dots, underscores
and hyphens, and a new one otherwise. It is sent in the response and logged with every line written while the
request is served. The line at the end has method, route, status and milliseconds: the route's *pattern*,
because paths may contain secrets. An exception that no handler caught is logged and answered with a 500 that
contains the id, so that a user's report leads to the log line.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable
from itertools import count

from ephemera.web import ASGIApp, Header, Message, Problem, Receive, Scope, Send
from ephemera_services.runtime.logs import REQUEST_ID

_HEADER = b"x-request-id"
_VALID_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROCESS = os.urandom(8).hex()
_numbers = count()
_STARTS = frozenset(("http.response.start", "websocket.accept"))

logger = logging.getLogger("ephemera_services.requests")


class RequestLogging:
    """Gives each request an id, logs it when it ends, and answers uncaught exceptions, with these headers."""

    def __init__(self, app: ASGIApp, headers: tuple[Header, ...]) -> None:
        self._app = app
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        request_id = _client_id(scope["headers"]) or f"{_PROCESS}{next(_numbers):08x}"
        token = REQUEST_ID.set(request_id)
        response = _Response(send, (_HEADER, request_id.encode()))
        started = time.perf_counter()
        try:
            await self._app(scope, receive, response.send)
        except Exception:
            logger.exception("uncaught exception")
            if response.status:
                raise
            detail = f"Something went wrong, and was logged as {request_id}."
            await Problem(500, "Internal Server Error", detail, headers=self._headers)(
                scope, receive, response.send
            )
        finally:
            _count(scope, response, started)
            if logger.isEnabledFor(logging.INFO):
                _log(scope, response.status, time.perf_counter() - started)
            REQUEST_ID.reset(token)


class _Response:
    """Forwards a response with one more header, and records its status."""

    __slots__ = ("_header", "_send", "began", "status")

    def __init__(self, send: Send, header: Header) -> None:
        self._send = send
        self._header = header
        self.status = 0
        self.began = 0.0

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] in _STARTS:
            self.status = message.get("status", 101)
            self.began = time.perf_counter()
            message["headers"] = [*message.get("headers", ()), self._header]
        return self._send(message)


def _client_id(headers: list[Header]) -> str | None:
    for name, value in headers:
        if name == _HEADER:
            return value.decode() if _VALID_ID.fullmatch(value) else None
    return None


def _count(scope: Scope, response: _Response, started: float) -> None:
    """Count a request in the service's metrics, if it has any; a stream counts as soon as it has begun."""
    metrics = getattr(scope["app"].state, "request_metrics", None) if "app" in scope else None
    if metrics is not None and response.status:
        method = scope.get("method", "WEBSOCKET")
        metrics.observe(method, _route(scope), response.status, response.began - started)


def _route(scope: Scope) -> str | None:
    route = scope.get("route")
    return None if route is None else scope.get("root_path", "") + route.path


def _log(scope: Scope, status: int, seconds: float) -> None:
    logger.info(
        "request",
        extra={
            "method": scope.get("method", "WEBSOCKET"),
            "route": _route(scope),
            "status": status,
            "ms": round(seconds * 1000, 2),
        },
    )
