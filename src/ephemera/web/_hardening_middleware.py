"""The outermost middleware of a service: hosts, origins, bodies, malformed input, and security headers.

    app.add_middleware(HardeningMiddleware, hosts=["shop.example.com"])

- **Hosts.** A request for another host name gets 421. Otherwise a foreign page could point its own name at
  the service and read its responses (DNS rebinding), and a forged name would end up in links.
- **Origins.** A request that changes something, and every WebSocket, is refused with 403 if the browser says
  that another origin's page sent it: by `Sec-Fetch-Site`, or by an `Origin` that is not the host. `SameSite`
  cookies do not cover this, since a sibling domain and another port are the same site. Clients that are no
  browsers send neither header. A page can send a bearer token, or without a cookie a body that no form has,
  only after a CORS preflight, which is the application's to answer: those pass.
- **Bodies.** One that is larger than the limit of its path gets 413: at once if its length is declared, and
  at the limit otherwise.
- **Malformed input.** JSON that is invalid, not UTF-8, has a lone surrogate, a NUL or a number that no 64-bit
  float holds gets 400, and so does a path or a query with a NUL or invalid UTF-8. Few applications expect
  these, and neither SQL nor a hash function accepts them.
- **Headers.** Those of `security_headers`, unless the response has its own.

It costs a few microseconds. What it cannot see, a request that never becomes complete, is the server's
business: see `uvicorn_limits`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from ephemera.web._asgi import ASGIApp, Header, Message, Problem, Receive, Scope, Send

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""The names of this machine for itself: the hosts of a service in development."""
BODY_LIMIT = 64 * 1024
"""Maximum size of a request body in bytes, unless its path has another limit."""

_API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_REQUESTS = frozenset(("http", "websocket"))
_RESPONSES = frozenset(("http.response.start", "websocket.http.response.start"))
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_OWN_PAGES = (b"same-origin", b"none")
_FORMS = (b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain", b"")
_MAX_KNOWN_HOSTS = 1000
_HOST = re.compile(r"(\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:\d{1,5})?")
_SENT_HOST = re.compile(r"([a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?")
_NUL = re.compile(
    rb"(?<!\\)(?:\\\\)*\\u0000"
)  # escaped in JSON; not after a backslash that is itself escaped
_NO_SUCH_HOST = "This service has no such host name."
_TOO_LARGE = HTTPStatus(413).phrase
_UNSOUND = "The body is not JSON in UTF-8, or has a NUL, a lone surrogate or a number out of range."
_log = logging.getLogger("ephemera.web")


def security_headers(*, policy: str = _API_POLICY, hsts: timedelta | None = None) -> tuple[Header, ...]:
    """The headers of every response: `policy` is the content security policy of responses without their own.

    `hsts` is how long browsers use only TLS for this host (Strict-Transport-Security). Set it once TLS works
    for good: it cannot be taken back before it ends.
    """
    headers = [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"same-origin"),  # with no-referrer, forms would have the origin `null`
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]
    if hsts is not None:
        headers.append((b"strict-transport-security", b"max-age=%d" % hsts.total_seconds()))
    return tuple(headers)


class HardeningMiddleware:
    """Refuses requests for other hosts, from other origins' pages, too large or malformed ones.

    Args:
        app: The ASGI application.
        hosts: Names of the service, as in `shop.example.com`, `*.example.com`, `[::1]` or, for one port only,
            `127.0.0.1:8085`; `*` accepts every name.
        origins: Other origins whose pages may send requests, as in `https://admin.example.com`.
        headers: Added to each response that does not have them; by default those of `security_headers()`.
        body_limit: The size in bytes of the largest request body; by default 64 KiB.
        body_limits: The limits of paths that differ from it, in bytes.

    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str],
        origins: Iterable[str] = (),
        headers: Iterable[Header] | None = None,
        body_limit: int = BODY_LIMIT,
        body_limits: Mapping[str, int] | None = None,
    ) -> None:
        self.app = app
        self._hosts = _checked_hosts(hosts)
        self._known_hosts: set[bytes] = set()  # accepted values of Host, so that each is parsed once
        self._origins = _checked_origins(origins)
        self._headers = tuple(security_headers() if headers is None else headers)
        self._header_names = frozenset(name for name, _ in self._headers)
        self._body_limit, self._body_limits = body_limit, dict(body_limits or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] not in _REQUESTS:
            return await self.app(scope, receive, send)
        send = partial(self._send_with_headers, send)
        if (problem := self._refusal(scope)) is not None:
            _log.info("request refused", extra={"reason": problem.document["detail"]})
            return await problem(scope, receive, send)
        if scope["type"] == "http" and scope["method"] not in _SAFE:
            return await self._serve_with_body(scope, receive, send)
        return await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Problem | None:
        host = None
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None or not (value in self._known_hosts or self._accepts(value)):
                    return Problem(421, "Misdirected Request", _NO_SUCH_HOST)
                host = value
        if host is None:
            return Problem(421, "Misdirected Request", _NO_SUCH_HOST)
        if (scope["type"] == "websocket" or scope["method"] not in _SAFE) and self._is_foreign(scope, host):
            return Problem(403, "Forbidden", "This request comes from a page of another origin.")
        path, query = scope["path"], scope.get("query_string")
        if "\x00" in path or "\ufffd" in path or (query and not _is_sound_query(query)):
            # A server decodes the path, and replaces what is not UTF-8.
            return Problem(400, "Bad Request", "The path or the query has a NUL or is not UTF-8.")
        return None

    def _accepts(self, host: bytes) -> bool:
        """Whether a Host header names one of the hosts; the result is remembered if it does."""
        text = host.decode("latin-1").lower()
        sent = _SENT_HOST.fullmatch(text)  # `shop.example:@evil.example` would be a link to the second
        if sent is None or not any(_names(each, text) or _names(each, sent[1]) for each in self._hosts):
            return False
        if len(self._known_hosts) < _MAX_KNOWN_HOSTS:
            self._known_hosts.add(host)
        return True

    def _is_foreign(self, scope: Scope, host: bytes) -> bool:
        """Whether a page of another origin sent it, with what a form can send without being asked."""
        headers = dict(scope["headers"])
        site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
        if site in _OWN_PAGES or (site is None and origin is None):
            return False
        if origin is not None:
            text = origin.decode("latin-1").lower()
            # Not `urlsplit`, which raises ValueError for some texts.
            if text in self._origins or (
                site is None and text.partition("://")[2] == host.decode("latin-1").lower()
            ):
                return False
        if scope["type"] == "websocket":
            return True
        if headers.get(b"authorization", b"")[:7].lower() == b"bearer ":
            return False
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        return b"cookie" in headers or kind in _FORMS

    def _send_with_headers(self, send: Send, message: Message) -> Awaitable[None]:
        if message["type"] in _RESPONSES:
            given, added = message.get("headers", ()), self._headers
            for name, _ in given:
                if name in self._header_names:
                    added = tuple(each for each in added if each[0] != name)
            message = {**message, "headers": [*given, *added]}
        return send(message)

    async def _serve_with_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        length, kind = 0, b""
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                length = int(
                    value[:19]
                )  # more digits are too large as well, and int() refuses thousands of them
            elif name == b"content-type":
                kind = value.lower()
        body = _Body(self._body_limits.get(path, self._body_limit), b"json" in kind, receive, send)
        if length > body.limit:
            await body.too_large()(scope, receive, send)
            return
        with suppress(_Refused):
            await self.app(scope, body.receive, body.send)
        if body.problem is not None and not body.response_started:
            await body.problem(scope, receive, send)


class _Refused(Exception):
    """The body was refused; `_Body.problem` says why."""


class _Body:
    """Counts and checks a body, and holds the application's response back once the body is refused."""

    def __init__(self, limit: int, is_json: bool, receive: Receive, send: Send) -> None:
        self.limit = limit
        self.problem: Problem | None = None
        self.response_started = False
        self._received = bytearray() if is_json else None
        self._size = 0
        self._receive, self._send = receive, send

    def too_large(self) -> Problem:
        return Problem(
            413, _TOO_LARGE, f"The body is larger than the {self.limit:,} bytes that this route accepts."
        )

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._check(message.get("body", b""), complete=not message.get("more_body", False))
        if self.problem is not None:
            raise _Refused
        return message

    def _check(self, part: bytes, *, complete: bool) -> None:
        self._size += len(part)
        if self._size > self.limit:
            self.problem = self.too_large()
        elif self._received is not None:
            self._received += part
            if complete and self._received and not _is_sound_json(bytes(self._received)):
                self.problem = Problem(400, "Bad Request", _UNSOUND)

    async def send(self, message: Message) -> None:
        if self.problem is not None and not self.response_started:
            return  # the application's reaction to the interrupted body
        self.response_started = True
        await self._send(message)


def _is_sound_json(body: bytes) -> bool:
    """Whether it is JSON that any part of an application can handle."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return b"\\u0000" not in body or _NUL.search(body) is None


def _is_sound_query(query: bytes) -> bool:
    """Whether a query has no NUL, and only bytes that are UTF-8."""
    if b"%" not in query and query.isascii():
        return True
    decoded = unquote_to_bytes(query)
    try:
        return "\x00" not in decoded.decode()
    except UnicodeDecodeError:
        return False


def _checked_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    found = (hosts,) if isinstance(hosts, str) else tuple(each.lower() for each in hosts)
    if not found or isinstance(hosts, str):
        raise ValueError(f"hosts={hosts!r}: give a list of the host names of the service")
    for each in found:
        if not _HOST.fullmatch(each):
            raise ValueError(
                f"{each!r} is not a host: use a name without scheme and path, as in 'example.com'"
            )
    return found


def _checked_origins(origins: Iterable[str]) -> frozenset[str]:
    found = frozenset(each.lower() for each in origins)
    for each in found:
        parts = urlsplit(each)
        if (
            parts.scheme not in ("http", "https")
            or each != f"{parts.scheme}://{parts.netloc}"
            or not parts.netloc
        ):
            raise ValueError(f"{each!r} is not an origin: use scheme and host, as in 'https://example.com'")
    return found


def _names(pattern: str, host: str) -> bool:
    return pattern in ("*", host) or (pattern.startswith("*.") and host.endswith(pattern[1:]))
