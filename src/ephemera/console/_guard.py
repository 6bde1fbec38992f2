"""What every request passes first: the right host, the right origin, signed in; and the headers of answers.

- **Host**: only names by which the console is meant to be reached. Otherwise a foreign page could point its
  own name at 127.0.0.1 and read what it gets (DNS rebinding).
- **Origin**: what changes something and every WebSocket must come from the console's own pages.
- **Signed in**: everything but the sign-in page and its style sheet. The socket as well: without it nothing
  is shown, and nothing that was shown can be asked again.
- **Headers**: a content security policy with a nonce for each answer, so that a script which somebody managed
  to get into a page does not run; no framing, no sniffing, no referrer for others, no caching of pages.

NiceGUI compiles its components' templates in the browser, for which `unsafe-eval` is needed, and sets styles
of elements, for which styles must be allowed inline. Neither lets markup run a script.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from ephemera.console._access import Access, SignIn
from ephemera.web._asgi import Header, Message, Receive, Scope, Send
from ephemera.web._cookies import Cookie

if TYPE_CHECKING:
    from fastapi import FastAPI

SIGNED_IN = "ephemera.console.signed_in"
"""Where a scope holds the sign-in."""

_READ = ("GET", "HEAD")
_SAFE = (*_READ, "OPTIONS")
_SCRIPT = re.compile(rb"^([ \t]*<script)(?=[ >])", re.MULTILINE)
_STRIPPED = (b"x-forwarded-prefix",)  # NiceGUI would put it into its pages
_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_ALWAYS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, forms would come from the origin `null`
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)


@dataclass(frozen=True)
class Origins:
    """By which names the console may be reached."""

    allowed: frozenset[str]
    """Such as `http://127.0.0.1:8085`."""

    @classmethod
    def of(cls, host: str, port: int, public_url: str | None) -> Origins:
        """Those of an address to listen on, and of a URL that others use."""
        names = {"localhost", "127.0.0.1", "[::1]"}
        if host not in ("0.0.0.0", "::", ""):  # noqa: S104 - it is not bound here
            names.add(f"[{host}]" if ":" in host else host)
        found = {f"http://{name}:{port}" for name in names}
        if public_url is not None:
            parts = urlsplit(public_url)
            found.add(f"{parts.scheme}://{parts.netloc}".lower())
        return cls(frozenset(found))

    def has_host(self, host: str) -> bool:
        """Whether a Host header names one of them; a default port may be left out."""
        return any(urlsplit(origin).netloc == host.lower() for origin in self.allowed)

    def has(self, origin: str) -> bool:
        """Whether a page of this origin is one of ours."""
        return origin.lower() in self.allowed


class Guard:
    """The outermost ASGI application."""

    def __init__(self, app: FastAPI, access: Access, origins: Origins, cookie: Cookie) -> None:
        self.app = app
        self._access = access
        self._origins = origins
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refused = self._refused(scope)
        signed_in = None if refused else self._access.find(self._cookie.find(scope["headers"]))
        if refused is None and signed_in is None and not _is_open(scope):
            refused = _sign_in_first(scope)
        if refused is not None:
            await _answer(scope, receive, self._dressed(send), *refused)
            return
        await self._passed(_handed_on(scope, signed_in), receive, self._dressed(send))

    async def _passed(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = False

        async def received() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or message["type"] == "http.disconnect"
            return message

        try:
            await self.app(scope, received, send)
        except RuntimeError:
            if not gone:  # otherwise Starlette misses an answer that nobody waits for
                raise

    def _refused(self, scope: Scope) -> tuple[int, str, list[Header]] | None:
        host = _header(scope, b"host")
        if not self._origins.has_host(host):
            return 421, "This console does not go by that name; see --public-url.", []
        origin = _header(scope, b"origin")
        risky = scope["type"] == "websocket" or scope["method"] not in _SAFE
        if (risky or origin) and not self._origins.has(origin):
            return 403, "This request comes from another site.", []
        return None

    def _dressed(self, send: Send) -> Send:
        """The headers of every answer; a page gets a policy with a nonce, and its scripts, too."""
        nonce = secrets.token_urlsafe(16)
        held: list[Message] = []

        async def dressed(message: Message) -> None:
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

        return dressed

    def _with_headers(self, message: Message, nonce: str) -> Message:
        policy = _POLICY.format(nonce=nonce)
        given = [(name.lower(), value) for name, value in message.get("headers", [])]
        present = {name for name, _ in given}
        added = [(b"content-security-policy", policy.encode()), *_ALWAYS]
        if b"cache-control" not in present:
            added.append((b"cache-control", b"no-store"))
        kept = [(name, value) for name, value in given if name != b"server"]
        return {**message, "headers": [*kept, *(each for each in added if each[0] not in present)]}


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


def _handed_on(scope: Scope, signed_in: SignIn | None) -> Scope:
    # A page comes uncompressed, so that the nonce can be put in.
    dropped = (*_STRIPPED, b"accept-encoding") if _wants_page(scope) else _STRIPPED
    headers = [each for each in scope["headers"] if each[0] not in dropped]
    return {**scope, "headers": headers, SIGNED_IN: signed_in}


def _is_open(scope: Scope) -> bool:
    """Whether it is for everybody: the form and what it is drawn with, asked in the usual way."""
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
    there = scope["path"] + (f"?{query}" if query else "")
    goal = "/sign-in" if there == "/" else f"/sign-in?next={quote(there, safe='')}"
    return 303, "Sign in first.", [(b"location", goal.encode())]


async def _answer(
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


def _header(scope: Scope, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")
