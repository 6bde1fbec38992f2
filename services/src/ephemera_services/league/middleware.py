"""The league's middleware: every request is measured, pages with ids are rate limited, some load a session.

A session is loaded only where it is needed: public pages are the same for all users, and a cookie that a
browser sends with them costs nothing.
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
from ephemera_services.league.figures import RequestMeter
from ephemera_services.league.keys import LIMITS, SESSIONS
from ephemera_services.league.settings import Settings

_LIVE = "/api/matches/"
_WITH_IDS = (_LIVE, "/api/clubs/", "/api/users/", "/api/leaderboards/", "/api/predictions")
"""Pages of which there are many; anyone can make ids up."""
_LEAGUE = "/api/league/"
"""Pages that have a query only if they are of a season, which is an id too."""
_SIGNED_IN = ("/api/me", "/api/admin", "/api/session")


def store_of(scope: Scope) -> Store:
    """The store of the running application."""
    store: Store = scope["app"].state.resources.store
    return store


def cookie_of(settings: Settings) -> Cookie:
    """The session cookie."""
    return Cookie() if settings.secure_cookies else Cookie(name="league-session", secure=False)


class LeagueMiddleware:
    """The league's own middleware."""

    def __init__(self, app: ASGIApp, settings: Settings, meter: RequestMeter) -> None:
        self._app = app
        self._client = ClientAddress(settings.trusted_proxies)
        self._live, self._pages = LIMITS["live"], LIMITS["pages"]
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
        status, started = 500, perf_counter()

        def record_status(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            return send(message)

        try:
            await self._app_for(scope)(scope, receive, record_status)
        finally:
            self._meter.count(status, perf_counter() - started)

    def _app_for(self, scope: Scope) -> ASGIApp:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["method"] not in ("GET", "HEAD") or path.startswith(_SIGNED_IN):
            return self._with_session
        has_id = path.startswith(_WITH_IDS) or (scope["query_string"] and path.startswith(_LEAGUE))
        return self._limited if has_id else self._app

    def _claims(self, scope: Scope) -> list[Claim]:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        rule = self._live if path.startswith(_LIVE) else self._pages
        return [rule.on(self._client.network(scope))]
