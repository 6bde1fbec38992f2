"""Sessions for web requests: a pure-ASGI middleware that reads the session while the request proceeds.

    app = SessionMiddleware(app, lambda scope: scope["state"]["store"][SESSIONS])

    handle = RequestSession.of(request)             # of Starlette or FastAPI: scope["state"]["session"]
    session = await handle.get()                    # the session, or None
    await handle.start(Session(user_id="u1"))       # sign in: a new token, and the cookie with the response
    await handle.end()                              # sign out

*Cost.* One round trip for a request with a cookie, none without. The read is sent at once and awaited by
`get`, so it is batched with the commands of other middlewares, and a route that needs no session does not
wait for it; the read extends the session either way.

*The cookie* is set when a session starts or gets a new token, and cleared when it ends here. The cookie of an
expired session is left alone: a response that cleared it might overtake one that set a new one. Nothing in a
cookie is an error: text that is not a token has no session.

*Problems.* A `Problem` that is raised below the middleware before the response starts becomes the response,
such as the 401 of `SignedIn`.

*When Redis is down*, `get` raises a 503 with Retry-After (`when_down="refuse"`), or returns None for a
request whose session is not `known` (`when_down="anonymous"`). Other operations of a route that need Redis,
such as a sign-in, are a 503 as well; routes that need no session are not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from ephemera._futures import discard
from ephemera.errors import ConnectionFailed
from ephemera.keyspace import REDIS_ERRORS, milliseconds, replaced
from ephemera.patterns.sessions import BoundSessions
from ephemera.web._asgi import (
    RESPONSE_STARTS,
    ASGIApp,
    Message,
    Problem,
    Receive,
    Scope,
    Send,
    unavailable,
    unavailable_because,
)
from ephemera.web._cookies import DEFAULT_COOKIE, Cookie, private_headers

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

S = TypeVar("S")

_UNREADABLE = "The sessions cannot be read at the moment; please try again."


class SessionMiddleware:
    """Gives every request its `RequestSession`.

    Args:
        app: The ASGI application.
        sessions: Finds the store's sessions for a scope, as in `lambda scope:
            scope["state"]["store"][SESSIONS]`.
        cookie: The cookie of the token.
        when_down: What happens while Redis is down: "refuse" a request that needs its session with 503, or
            treat it as "anonymous".

    """

    def __init__(
        self,
        app: ASGIApp,
        sessions: Callable[[Scope], BoundSessions[Any]],
        *,
        cookie: Cookie = DEFAULT_COOKIE,
        when_down: Literal["refuse", "anonymous"] = "refuse",
    ) -> None:
        if when_down not in ("refuse", "anonymous"):
            raise ValueError(f"when_down={when_down!r}: use 'refuse' or 'anonymous'")
        self._app = app
        self._sessions = sessions
        self._cookie = cookie
        self._refuses = when_down == "refuse"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the read, run the application, and set the cookie if it changed."""
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        token = self._cookie.find(scope["headers"])
        sessions = self._sessions(scope)
        reply = None
        if token is not None and (reply := sessions.reader.send(token)) is None:
            token = None  # text that is not a token has no session
        handle = RequestSession(sessions, token, self._cookie, send, self._refuses, reply)
        scope.setdefault("state", {})["session"] = handle
        try:
            await self._app(scope, receive, handle._send_message)
        except Problem as problem:
            if handle.response_started:
                raise
            await problem(scope, receive, handle._send_message)
        except ConnectionFailed as error:
            if handle.response_started:
                raise
            await unavailable_because(error)(scope, receive, handle._send_message)
        finally:
            handle._close()


class RequestSession(msgspec.Struct, Generic[S], eq=False):
    """The session of one request, and the operations on it."""

    _sessions: BoundSessions[S]
    _token: str | None
    _cookie: Cookie
    _send: Send
    _refuses: bool
    _reply: asyncio.Future[Any] | None  # to the read, until it is decoded
    _value: S | None = None
    _header: bytes | None = None
    response_started: bool = False
    """Whether the response has started, so that no cookie can be set any more."""
    known: bool = True
    """False when Redis was unavailable, so that it is unknown whether there is a session."""

    @staticmethod
    def of(connection: HTTPConnection) -> RequestSession[Any]:
        """The session of a Starlette or FastAPI request or WebSocket."""
        # `connection.state` would be created for this alone, and costs more than the rest of a session read.
        handle = connection.scope.get("state", {}).get("session")
        if not isinstance(handle, RequestSession):
            raise TypeError("there is no session here: add SessionMiddleware to the application")
        return handle

    def __repr__(self) -> str:
        return f"<RequestSession, {'with' if self._token else 'without'} a token>"

    async def get(self) -> S | None:
        """Return the session, or None; raise a 503 when Redis is unavailable and the policy is to refuse."""
        reply = self._reply
        if reply is None:
            return self._value
        reader = self._sessions.reader
        try:
            self._value = session = reader.decode(reply) if reply.done() else await reader.receive(reply)
        except REDIS_ERRORS:
            self.known = False
            if self._refuses:
                raise unavailable(_UNREADABLE) from None
            return None
        self._reply = None
        if session is None:
            self._token = None
        elif self._cookie.persistent and (token := self._token) is not None:
            self._renew_cookie(token)
        return session

    async def is_valid(self) -> bool:
        """Check again whether the session is valid, without extending it: for long-lived connections."""
        return self._token is not None and await self._sessions.peek(self._token) is not None

    @property
    def id(self) -> str | None:
        """The session's id, as `of_user` lists it; None without a token."""
        return None if self._token is None else self._sessions.id_of(self._token)

    async def begin_sign_in(self, user: str) -> str:
        """Announce a sign-in before you read the account, for `start(..., sign_in=...)`."""
        return await self._sessions.begin_sign_in(user)

    async def start(
        self, session: S, *, sign_in: str | None = None, lifetime: timedelta | None = None
    ) -> None:
        """Sign in: create a session with a new token, and end the one before it.

        Args:
            session: The record of the session.
            sign_in: What `begin_sign_in` returned.
            lifetime: End the session earlier than declared, as without "remember me": that long after now,
                however often it is used. A persistent cookie ends with it.

        """
        token = await self._sessions.create(
            session, sign_in=sign_in, replacing=self._token, lifetime=lifetime
        )
        self._use(token, lifetime)
        self._value = session

    async def rotate(self) -> bool:
        """Replace the token, as after a change of rights; False when the session has ended."""
        await self.get()
        token = None if self._token is None else await self._sessions.rotate(self._token)
        if token is not None:
            self._use(token)
        return token is not None

    async def update(self, **changes: Any) -> bool:
        """Change some fields of the session; False when it has ended."""
        session = await self.get()
        if session is None or self._token is None or not await self._sessions.update(self._token, **changes):
            return False
        self._value = replaced(session, changes)
        return True

    async def end(self) -> None:
        """Sign out: end the session, and make the browser delete its token."""
        if self._token is not None:
            await self._sessions.end(self._token)
        self._discard_read()
        self._token = self._value = None
        self._header = self._cookie.clear()

    def _send_message(self, message: Message) -> Awaitable[None]:
        """Pass a message on; add the cookie to the start of the response if it changed."""
        if message["type"] in RESPONSE_STARTS:
            self.response_started = True
            if self._header is not None:
                headers = private_headers(message.get("headers", ()))
                message = {**message, "headers": [*headers, (b"set-cookie", self._header)]}
        return self._send(message)

    def _close(self) -> None:
        """Release the request when it has ended."""
        self._discard_read()
        # The server's `send` refers to the scope, and the scope to this: the cycle would keep all objects of
        # the request until the garbage collector runs, which costs more than a session read.
        self._send = _request_ended

    def _discard_read(self) -> None:
        if self._reply is not None:
            discard(self._reply)  # not cancelled: the read extends the session in any case
            self._reply = None

    def _renew_cookie(self, token: str) -> None:
        if lifetime := self._sessions.renewed_lifetime(token):
            self._header = self._cookie.set(token, lifetime)

    def _use(self, token: str, lifetime: timedelta | None = None) -> None:
        self._discard_read()
        self._token = token
        sessions = self._sessions
        age = sessions.renewed_lifetime(token) if lifetime is None else milliseconds(lifetime)
        self._header = self._cookie.set(token, min(age or sessions.lifetime, sessions.lifetime))


async def _request_ended(message: Message) -> None:
    raise RuntimeError(f"{message['type']} was sent after the request had ended")
