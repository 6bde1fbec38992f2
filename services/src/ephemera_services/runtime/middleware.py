"""Middleware of every service: request ids and logging, and a limit on the size of request bodies.

*Request ids.* The id is the caller's `X-Request-ID` if it is at most 64 letters, digits, dots, underscores
and hyphens, and a new one otherwise. It is sent in the response and logged with every line written while the
request is served. The line at the end has method, route, status and milliseconds: the route's *pattern*,
because paths may contain secrets. An exception that no handler caught is logged and answered with a 500 that
contains the id, so that a user's report leads to the log line.

*Body limits.* A request whose body exceeds the limit of its path is refused with 413. A declared
`Content-Length` is checked before anything is read; a body without one is cut off at the limit.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable, Mapping
from itertools import count

from ephemera.web import ASGIApp, Header, Message, Problem, Receive, Scope, Send
from ephemera_services.runtime.logs import REQUEST_ID
from ephemera_services.runtime.problem_documents import problem

DEFAULT_BODY_LIMIT = 64 * 1024
"""Maximum size of a request body in bytes, unless its path has another limit."""

_HEADER = b"x-request-id"
_VALID_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROCESS = os.urandom(8).hex()
_numbers = count()
_STARTS = frozenset(("http.response.start", "websocket.accept"))

logger = logging.getLogger("ephemera_services.requests")


class RequestLogging:
    """Gives each request an id, logs it when it ends, and answers uncaught exceptions. The outermost one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

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
            await Problem(500, "Internal Server Error", detail)(scope, receive, response.send)
        finally:
            if logger.isEnabledFor(logging.INFO):
                _log(scope, response.status, time.perf_counter() - started)
            REQUEST_ID.reset(token)


class _Response:
    """Forwards a response with one more header, and records its status."""

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


def _client_id(headers: list[Header]) -> str | None:
    for name, value in headers:
        if name == _HEADER:
            return value.decode() if _VALID_ID.fullmatch(value) else None
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


class BodyLimits:
    """Refuses bodies larger than `default` bytes, or than the limit in `larger` for the request's path."""

    def __init__(self, app: ASGIApp, larger: Mapping[str, int], default: int = DEFAULT_BODY_LIMIT) -> None:
        self._app = app
        self._larger = larger
        self._default = default

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request; one without a body costs no additional coroutine."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            return self._app(scope, receive, send)
        return self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._larger.get(scope["path"].removeprefix(scope.get("root_path", "")), self._default)
        if _content_length(scope) > limit:
            await _too_large(limit)(scope, receive, send)
            return
        body = _LimitedBody(limit, receive, send)
        try:
            await self._app(scope, body.receive, body.send)
        except _TooLarge:
            body.exceeded = True
        if body.exceeded and not body.response_started:
            await _too_large(limit)(scope, receive, send)


class _TooLarge(Exception):
    """The body exceeded its limit."""


class _LimitedBody:
    """Counts a body's bytes, and holds the application's response back once the limit is exceeded."""

    def __init__(self, limit: int, receive: Receive, send: Send) -> None:
        self._left = limit
        self._receive, self._send = receive, send
        self.exceeded = False
        self.response_started = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self.exceeded = True
            raise _TooLarge
        return message

    async def send(self, message: Message) -> None:
        if self.exceeded and not self.response_started:
            return  # the application's reaction to the interrupted body
        self.response_started = True
        await self._send(message)


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _too_large(limit: int) -> Problem:
    return problem(413, f"The body is larger than the {limit:,} bytes that this route accepts.")
