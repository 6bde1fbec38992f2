"""Sessions for web requests: a pure-ASGI middleware that starts to read the session before the application.

    app = SessionMiddleware(app, lambda scope: scope["state"]["store"][SESSIONS])

    handle = RequestSession.of(request)             # of Starlette or FastAPI: scope["state"]["session"]
    session = await handle.get()                    # the session, or None
    await handle.start(Session(user_id="u1"))       # sign in: a new token, and the cookie with the response
    await handle.end()                              # sign out

One trip a request that brings a cookie, none without. The read is sent at once and awaited by `get`, so it
travels with what other middlewares ask, and a route that needs no session does not wait for it; either way
the session slides. The cookie is set when a session starts or gets a new id, and cleared when it ends here.
A cookie whose session is over is left alone: a response that cleared it might overtake one that set a new
one. Below it, a `Problem` that is raised before the response begins becomes the response, such as the 401
of `session_dependencies`. What comes in a cookie is never an error: what is no token has no session.
Redis down or hung: `get` raises a 503 with Retry-After (`when_down="refuse"`), or gives None to a request
whose session is not `known` (`when_down="anonymous"`); what else a route cannot do without Redis, such as to
sign somebody in, is a 503 as well; routes that ask for nothing are served as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from ephemera._futures import discard
from ephemera.errors import ConnectionFailed
from ephemera.keyspace import REDIS_ERRORS
from ephemera.patterns.sessions import BoundSessions
from ephemera.web._asgi import ASGIApp, Message, Receive, Scope, Send
from ephemera.web._cookies import Cookie, for_one_browser
from ephemera.web._problems import Problem, unavailable

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

S = TypeVar("S", bound=msgspec.Struct)

_STARTS = frozenset(("http.response.start", "websocket.accept", "websocket.http.response.start"))
_AWAY = "The sessions cannot be read at the moment; please try again."


class SessionMiddleware:
    """Gives every request its `RequestSession`; `sessions` finds the store's sessions for a scope."""

    def __init__(
        self,
        app: ASGIApp,
        sessions: Callable[[Scope], BoundSessions[Any]],
        *,
        cookie: Cookie = Cookie(),  # noqa: B008 - it is frozen
        when_down: Literal["refuse", "anonymous"] = "refuse",
    ) -> None:
        if when_down not in ("refuse", "anonymous"):
            raise ValueError(f"when_down={when_down!r}: use 'refuse' or 'anonymous'")
        self._app = app
        self._sessions = sessions
        self._cookie = cookie
        self._refuses = when_down == "refuse"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start the read, run the application, and send the cookie if it changed."""
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        token = self._cookie.find(scope["headers"])
        sessions = self._sessions(scope)
        reply = None
        if token is not None and (reply := sessions.reader.send(token)) is None:
            token = None  # what is no token has no session
        handle = RequestSession(sessions, token, self._cookie, send, self._refuses, reply)
        scope.setdefault("state", {})["session"] = handle
        try:
            await self._app(scope, receive, handle.send)
        except Problem as problem:
            if handle.has_begun:
                raise
            await problem(scope, receive, handle.send)
        except ConnectionFailed:
            if handle.has_begun:
                raise
            await unavailable()(scope, receive, handle.send)
        finally:
            handle.close()


class RequestSession(msgspec.Struct, Generic[S], eq=False):
    """The session of one request, and what the request may do to it."""

    _sessions: BoundSessions[S]
    _token: str | None
    _cookie: Cookie
    _send: Send
    _refuses: bool
    _reply: asyncio.Future[Any] | None  # to the read, until somebody asked for the session
    _value: S | None = None
    _header: bytes | None = None
    has_begun: bool = False
    """Whether the response is on its way, so that no cookie can be set any more."""
    known: bool = True
    """False: Redis could not be asked, so nobody knows whether there is a session."""

    @staticmethod
    def of(connection: HTTPConnection) -> RequestSession[Any]:
        """That of a request or WebSocket of Starlette or FastAPI."""
        # `connection.state` would be made for this alone, and costs more than the rest of reading a session.
        handle = connection.scope.get("state", {}).get("session")
        if not isinstance(handle, RequestSession):
            raise TypeError("there is no session here: add SessionMiddleware to the application")
        return handle

    def __repr__(self) -> str:
        return f"<RequestSession, {'with' if self._token else 'without'} a token>"

    async def get(self) -> S | None:
        """The session, or None; a `Problem` of 503 when Redis cannot be asked and the policy is to refuse."""
        reply = self._reply
        if reply is None:
            return self._value
        reader = self._sessions.reader
        try:
            self._value = session = reader.decode(reply) if reply.done() else await reader.receive(reply)
        except REDIS_ERRORS:
            self.known = False
            if self._refuses:
                raise unavailable(_AWAY) from None
            return None
        self._reply = None
        if session is None:
            self._token = None
        elif self._cookie.persistent and self._token is not None:
            self._header = self._cookie.set(self._token, self._sessions.lifetime)
        return session

    async def lives(self) -> bool:
        """Whether the session is valid now, asked anew and without sliding: for what goes on for long."""
        return self._token is not None and await self._sessions.peek(self._token) is not None

    @property
    def id(self) -> str | None:
        """The session's id, as a list of the user's sessions shows it; None without a token."""
        return None if self._token is None else self._sessions.id_of(self._token)

    async def begin_sign_in(self, user: str) -> str:
        """Announce a sign-in before you read the account, for `start(..., sign_in=...)`."""
        return await self._sessions.begin_sign_in(user)

    async def start(self, session: S, *, sign_in: str | None = None) -> None:
        """Sign in: a new session with a new token in place of what there was."""
        token = await self._sessions.create(session, sign_in=sign_in, replacing=self._token)
        self._use(token)
        self._value = session

    async def rotate(self) -> bool:
        """Give the session a new token, as after a change of rights; False when it is over."""
        await self.get()
        token = None if self._token is None else await self._sessions.rotate(self._token)
        if token is not None:
            self._use(token)
        return token is not None

    async def update(self, **changes: Any) -> bool:
        """Change some fields of the session; False when it is over."""
        session = await self.get()
        if session is None or self._token is None or not await self._sessions.update(self._token, **changes):
            return False
        self._value = msgspec.structs.replace(session, **changes)
        return True

    async def end(self) -> None:
        """Sign out: end the session, and have the browser forget its token."""
        if self._token is not None:
            await self._sessions.end(self._token)
        self._discard_read()
        self._token = self._value = None
        self._header = self._cookie.clear()

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message on; the response's start takes the cookie along if it changed."""
        if message["type"] in _STARTS:
            self.has_begun = True
            if self._header is not None:
                headers = for_one_browser(message.get("headers", ()))
                message = {**message, "headers": [*headers, (b"set-cookie", self._header)]}
        return self._send(message)

    def close(self) -> None:
        """Forget the request, when it is over."""
        self._discard_read()
        # The server's `send` leads to the scope, and the scope to this: left alone, the circle would keep all
        # objects of the request until the garbage collector comes, which costs more than reading the session.
        self._send = _over

    def _discard_read(self) -> None:
        if self._reply is not None:
            discard(self._reply)  # not cancelled: the read extends the session in any case
            self._reply = None

    def _use(self, token: str) -> None:
        self._discard_read()
        self._token = token
        self._header = self._cookie.set(token, self._sessions.lifetime)


async def _over(message: Message) -> None:
    raise RuntimeError(f"{message['type']} was sent after the request was over")
