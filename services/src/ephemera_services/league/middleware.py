"""What every request passes: it is measured, counted against a limit where it is live, and has a session.

Only those who need a session are given one: public pages are the same for everybody, and a cookie that a
browser sends along costs nothing there.
"""

from __future__ import annotations

from collections.abc import Awaitable
from time import perf_counter

from ephemera import Store
from ephemera.patterns.rate_limits import Claim
from ephemera.web import (
    ASGIApp,
    ClientAddress,
    Cookie,
    LimitMiddleware,
    Message,
    Receive,
    Scope,
    Send,
    SessionMiddleware,
)
from ephemera_services.league.figures import Meter
from ephemera_services.league.keys import LIMITS, SESSIONS
from ephemera_services.league.settings import Settings

_LIVE = "/api/matches/"
_SIGNED_IN = ("/api/me", "/api/admin", "/api/session")


def store_of(scope: Scope) -> Store:
    """The store of the running application."""
    store: Store = scope["app"].state.resources.store
    return store


def cookie_of(settings: Settings) -> Cookie:
    """The session's cookie."""
    return Cookie() if settings.secure_cookies else Cookie(name="league-session", secure=False)


class Front:
    """The league's own middleware."""

    def __init__(self, app: ASGIApp, settings: Settings, meter: Meter) -> None:
        self._app = app
        self._client = ClientAddress(settings.trusted_proxies)
        self._rule = LIMITS.rules["live"]
        self._limited = LimitMiddleware(app, lambda scope: store_of(scope)[LIMITS], self._claims)
        self._with_session = SessionMiddleware(
            app, lambda scope: store_of(scope)[SESSIONS], cookie=cookie_of(settings)
        )
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            app = self._with_session if scope["type"] == "websocket" else self._app
            await app(scope, receive, send)
            return
        status, began = 500, perf_counter()

        def sending(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            return send(message)

        try:
            await self._chosen(scope)(scope, receive, sending)
        finally:
            self._meter.count(status, perf_counter() - began)

    def _chosen(self, scope: Scope) -> ASGIApp:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["method"] not in ("GET", "HEAD") or path.startswith(_SIGNED_IN):
            return self._with_session
        return self._limited if path.startswith(_LIVE) else self._app

    def _claims(self, scope: Scope) -> list[Claim]:
        return [self._rule.on(self._client.network(scope))]
