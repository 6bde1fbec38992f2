"""No request brings more than its route can use: above the limit it is refused with 413, unread.

A declared `Content-Length` is refused at once; a body without one is cut off when it has come to the limit.
Either way nothing of it is kept, and the answer is a problem document.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from ephemera.web._asgi import ASGIApp, Message, Receive, Scope, Send
from ephemera.web._problems import Problem
from ephemera_services.problem_answers import problem

USUAL = 64 * 1024
"""Bytes that a body may have unless its route says otherwise."""


class BodyLimits:
    """Refuses bodies above `usual` bytes, or above what `larger` says for a path of the application."""

    def __init__(self, app: ASGIApp, larger: Mapping[str, int], usual: int = USUAL) -> None:
        self._app = app
        self._larger = larger
        self._usual = usual

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request whose body ends in time; those without one do not even cost a frame more."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            return self._app(scope, receive, send)
        return self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = self._larger.get(scope["path"].removeprefix(scope.get("root_path", "")), self._usual)
        if _declared(scope) > most:
            await _too_large(most)(scope, receive, send)
            return
        body = _Bounded(most, receive, send)
        try:
            await self._app(scope, body.receive, body.send)
        except _TooLarge:
            body.exceeded = True
        if body.exceeded and not body.begun:
            await _too_large(most)(scope, receive, send)


class _TooLarge(Exception):
    """The body went on after its limit."""


class _Bounded:
    """A body that is counted, and an answer that is held back when the body was too large."""

    def __init__(self, most: int, receive: Receive, send: Send) -> None:
        self._left = most
        self._receive, self._send = receive, send
        self.exceeded = False
        self.begun = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self.exceeded = True
            raise _TooLarge
        return message

    async def send(self, message: Message) -> None:
        if self.exceeded and not self.begun:
            return  # whatever the application makes of a body that broke off
        self.begun = True
        await self._send(message)


def _declared(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _too_large(most: int) -> Problem:
    return problem(413, f"The body is larger than the {most:,} bytes that this route takes.")
