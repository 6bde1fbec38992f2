"""What the console adds to the library's `HardeningMiddleware`: the sign-in, and a policy for its pages.

- **Origin**: requests that change something, and every WebSocket, must name their origin, as browsers do. The
  middleware around this one has checked that it is the console's own.
- **Sign-in**: required for everything but the sign-in page and its style sheet, including the WebSocket that
  all content comes through.
- **Headers**: a content security policy with a nonce per response, so that an injected script does not run,
  and no caching of pages.

NiceGUI compiles its components' templates in the browser, which needs `unsafe-eval`, and sets styles of
elements, which needs inline styles. Neither lets markup run a script.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, urlsplit

from fastapi import FastAPI

from ephemera.console._access import ConsoleAccess, SignIn
from ephemera.web import Cookie, Header, Message, Receive, Scope, Send

SIGNED_IN = "ephemera.console.signed_in"
"""The key of the sign-in in a scope."""

_ANY_ADDRESS = (str(IPv4Address(0)), str(IPv6Address(0)), "")
_READ = ("GET", "HEAD")
_SAFE = (*_READ, "OPTIONS")
_SCRIPT = re.compile(rb"^([ \t]*<script)(?=[ >])", re.MULTILINE)
_STRIPPED = (b"x-forwarded-prefix",)  # NiceGUI would use it in its pages
_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_ALWAYS: tuple[Header, ...] = (
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)


@dataclass(frozen=True)
class Origins:
    """The origins by which the console can be reached."""

    allowed: frozenset[str]
    """Such as `http://127.0.0.1:8085`."""

    @classmethod
    def of(cls, host: str, port: int, public_url: str | None) -> Origins:
        """The origins of an address to listen on, and of a public URL."""
        names = {"localhost", "127.0.0.1", "[::1]"}
        if host not in _ANY_ADDRESS:
            names.add(f"[{host}]" if ":" in host else host)
        found = {f"http://{name}:{port}" for name in names}
        if public_url is not None:
            parts = urlsplit(public_url)
            found.add(f"{parts.scheme}://{parts.netloc}".lower())
        return cls(frozenset(found))

    @property
    def hosts(self) -> frozenset[str]:
        """Such as `127.0.0.1:8085`; a default port is left out."""
        return frozenset(urlsplit(origin).netloc for origin in self.allowed)


class Guard:
    """Lets the signed-in operator in."""

    def __init__(self, app: FastAPI, access: ConsoleAccess, cookie: Cookie) -> None:
        self.app = app
        self._access = access
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refused = _without_origin(scope)
        signed_in = None if refused else self._access.find(self._cookie.find(scope["headers"]))
        if refused is None and signed_in is None and not _is_public(scope):
            refused = _sign_in_first(scope)
        if refused is not None:
            await _refuse(scope, receive, self._with_security(send), *refused)
            return
        await self._forward(_forwarded_scope(scope, signed_in), receive, self._with_security(send))

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = False

        async def received() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or message["type"] == "http.disconnect"
            return message

        try:
            await self.app(scope, received, send)
        except RuntimeError:
            if not gone:  # otherwise the client has disconnected, and Starlette misses its response
                raise

    def _with_security(self, send: Send) -> Send:
        """Add the headers to a response; a page's scripts get the nonce of its policy."""
        nonce = secrets.token_urlsafe(16)
        held: list[Message] = []

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                held.append(self._with_headers(message, nonce))
                if not _is_page(message):
                    await send(held.pop())
            elif message["type"] == "http.response.body" and held:
                body = held[0].setdefault("ephemera.body", bytearray())
                body += message.get("body", b"")
                if not message.get("more_body"):
                    start = held.pop()
                    await _send_page(send, start, bytes(start.pop("ephemera.body")), nonce.encode())
            else:
                await send(message)

        return send_secured

    def _with_headers(self, message: Message, nonce: str) -> Message:
        policy = _POLICY.format(nonce=nonce)
        headers = [(name.lower(), value) for name, value in message.get("headers", [])]
        present = {name for name, _ in headers}
        added = [(b"content-security-policy", policy.encode()), *_ALWAYS]
        if b"cache-control" not in present:
            added.append((b"cache-control", b"no-store"))
        kept = [(name, value) for name, value in headers if name != b"server"]
        return {**message, "headers": [*kept, *(each for each in added if each[0] not in present)]}


def _without_origin(scope: Scope) -> tuple[int, str, list[Header]] | None:
    risky = scope["type"] == "websocket" or scope["method"] not in _SAFE
    return (
        (403, "This request does not name its origin.", [])
        if risky and not _header(scope, b"origin")
        else None
    )


async def _send_page(send: Send, start: Message, body: bytes, nonce: bytes) -> None:
    body = _SCRIPT.sub(rb'\1 nonce="' + nonce + b'"', body)
    headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
    await send({**start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


def _is_page(message: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/html")
        for name, value in message.get("headers", [])
    )


def _forwarded_scope(scope: Scope, signed_in: SignIn | None) -> Scope:
    # A page must be uncompressed, so that the nonce can be inserted.
    dropped = (*_STRIPPED, b"accept-encoding") if _wants_page(scope) else _STRIPPED
    headers = [each for each in scope["headers"] if each[0] not in dropped]
    return {**scope, "headers": headers, SIGNED_IN: signed_in}


def _is_public(scope: Scope) -> bool:
    """Whether it needs no sign-in: the form and its assets."""
    if scope["type"] != "http":
        return False
    path, method = scope["path"], scope["method"]
    if path == "/sign-in":
        return method in (*_READ, "POST")
    return method in _READ and (path.startswith("/assets/") or path == "/favicon.ico")


def _sign_in_first(scope: Scope) -> tuple[int, str, list[Header]]:
    if not _wants_page(scope):
        return 401, "Sign in first.", []
    query = scope.get("query_string", b"").decode("latin-1")
    target = scope["path"] + (f"?{query}" if query else "")
    goal = "/sign-in" if target == "/" else f"/sign-in?next={quote(target, safe='')}"
    return 303, "Sign in first.", [(b"location", goal.encode())]


async def _refuse(
    scope: Scope, receive: Receive, send: Send, status: int, text: str, headers: Iterable[Header]
) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4401 if status == 401 else 4403})  # 403, not accepted
        return
    plain = [(b"content-type", b"text/plain; charset=utf-8"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": plain})
    await send({"type": "http.response.body", "body": text.encode()})


def _wants_page(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] == "GET" and "text/html" in _header(scope, b"accept")


def _header(scope: Scope, header: bytes) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == header), "")
