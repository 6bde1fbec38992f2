"""The one object of a Flask application: its store, sessions, limits and caches."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from flask import Flask, Response, after_this_request, current_app, request, session

from ephemera import sync
from ephemera.adapters._request_limits import By, RequestLimit, TextHeaders, finder
from ephemera.adapters._stored_sessions import StoredSessions, declare_sessions, user_in
from ephemera.adapters.flask._cached_views import CachedFunction, StoredPage, cached_function, cached_view
from ephemera.adapters.flask._sessions import (
    FlaskSession,
    FlaskSessionInterface,
    as_http_exception,
    as_response,
)
from ephemera.errors import ConnectionFailed, InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Sliding, connect, sliding
from ephemera.patterns.cache import Cache, LocalCache
from ephemera.patterns.rate_limits import Rule, WhenDown
from ephemera.sync import SyncStore
from ephemera.web import (
    ClientAddress,
    Problem,
    check_cache_options,
    check_order,
    check_rate,
    declare_cache,
    replacing,
    unavailable,
)

P = ParamSpec("P")
R = TypeVar("R")

_NO_TIME = timedelta(0)
_MONTH = sliding(days=31)


class Ephemera:
    """Everything of Ephemera that a Flask application needs; `eph.init_app(app)` adds it.

    Args:
        url: The server, as for `connect`. It is read when the store is first used.
        catalogues: What the store may use; sessions, limits and caches are declared in the first.
        session_lifetime: How long a session lives, such as `sliding(hours=24)`; None leaves Flask's own.
        user_key: The key of a session under which the application puts the id of the signed-in user:
            `"_user_id"` with Flask-Login.
        client: Finds the address of a client; give the trusted proxies, if there are any.
        options: Options of `connect`, such as `queue_url`, `credentials` and `resources`.

    """

    def __init__(
        self,
        url: str,
        *catalogues: Catalogue,
        session_lifetime: Sliding | Fixed | None = _MONTH,
        user_key: str = "user_id",
        client: ClientAddress | None = None,
        **options: Any,
    ) -> None:
        if not catalogues or not all(isinstance(each, Catalogue) for each in catalogues):
            raise InvalidDeclaration("Ephemera", "it has no catalogue", "write: Ephemera(url, catalogue)")
        inspect.signature(connect).bind(url, *catalogues, **options)
        self.url = url
        self.catalogues = catalogues
        self.sessions = (
            None if session_lifetime is None else declare_sessions(catalogues[0], session_lifetime)
        )
        """The declaration of the sessions, or None."""
        self._user_key = user_key
        self._client = ClientAddress() if client is None else client
        self._options = options
        self._opening = threading.Lock()
        self._store: SyncStore | None = None

    def __repr__(self) -> str:
        return f"<Ephemera of {', '.join(catalogue.name for catalogue in self.catalogues)}>"

    def init_app(self, app: Flask) -> None:
        """Give an application its sessions, and responses for `Problem` and for a server that is down."""
        if self.sessions is not None:
            app.session_interface = FlaskSessionInterface(self._stored_sessions, self._user_key)
        app.register_error_handler(Problem, as_response)
        app.register_error_handler(ConnectionFailed, lambda _: as_response(unavailable()))
        app.extensions["ephemera"] = self
        is_checked = False

        @app.before_request
        def check_once() -> None:
            nonlocal is_checked
            if not is_checked:
                check_order(app.view_functions.values())
                is_checked = True

    @property
    def store(self) -> SyncStore:
        """The store, which is opened when it is first used, even while its server is down."""
        return self._opened()

    def close(self) -> None:
        """Close the store, such as at the end of a test; the next use opens another."""
        with self._opening:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def end_sessions(self, user: object, *, keep_current: bool = False) -> int:
        """End all sessions of a user, and return how many; when this returns, none of them is valid.

        Args:
            user: The user's id, as the application puts it into the session.
            keep_current: Keep the session of this request, as after a change of the password.

        """
        keep = session._token if keep_current and isinstance(session, FlaskSession) else None
        return self._stored_sessions().end_all(str(user), keep=keep)

    def limit(
        self,
        rate: str | Rule,
        *,
        by: By = "address",
        name: str | None = None,
        when_down: WhenDown = "open",
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Limit a view: a decorator below that of the route.

        A denied request gets 429 with Retry-After as a problem document, and does not reach the view; others
        get the headers `RateLimit-Policy` and `RateLimit`. Several limits are checked one after the other.

        Args:
            rate: A sliding window such as `"60/minute"` or `"5/10 seconds"`, or a rule that is declared.
            by: Whom it counts. `"address"`: the client's address, or IPv6 network. `"user"`: the signed-in
                user, and others by address. `"header:x-api-key"`: the value of a header, and without it the
                address. Or a function of the request that returns the subject, or None for no limit.
            name: Its name in keys, headers and responses: by default that of the view.
            when_down: The policy while Redis is down: "open", "closed" or `local_share(of=...)`.

        """
        check_rate(rate, name, when_down)
        find = finder(by, self._client, None if self.sessions is None else self._current_user)

        def decorate(view: Callable[P, R]) -> Callable[P, R]:
            limit = RequestLimit(self.catalogues[0], name or view.__name__, rate, when_down, find)

            @wraps(view)
            def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                _send_with_response(self._check(limit))
                return cast("R", current_app.ensure_sync(view)(*args, **kwargs))

            return replacing(view, limited)

        return decorate

    def cached(
        self,
        cache: Cache[Any] | str,
        *,
        fresh: timedelta | None = None,
        stale: timedelta = _NO_TIME,
        missing: timedelta = _NO_TIME,
        local: LocalCache | None = None,
        sensitive: bool = False,
    ) -> Callable[[Callable[P, R]], CachedFunction[P, R]]:
        """Cache the results of a function; its parameters are the fields of the key.

        The function keeps its signature, and gets `delete(...)` with the same one, for after a commit. It
        runs once for all callers that wait for the same result, in the thread of the first of them; a
        refresh of a stale result runs in a thread of its own.

        Args:
            cache: The pattern of the keys, such as `"profile:{user_id}"`, or a `Cache` that is declared.
            fresh: How long a result is fresh; with a pattern it is required.
            stale: How long it is kept after that, to be served while it is refreshed or cannot be.
            missing: How long to remember that the result is None; by default not at all.
            local: Keep results in this process, too.
            sensitive: Whether results are personal or secret; consoles and logs then hide them.

        """
        check_cache_options(cache, fresh, stale, missing, local, sensitive)

        def decorate(function: Callable[P, R]) -> CachedFunction[P, R]:
            declared = declare_cache(
                self.catalogues[0],
                cache,
                function,
                fresh=fresh,
                stale=stale,
                missing=missing,
                local=local,
                sensitive=sensitive,
            )
            return cached_function(function, declared, self._opened)

        return decorate

    def page(
        self,
        pattern: str,
        *,
        fresh: timedelta,
        stale: timedelta = _NO_TIME,
        missing: timedelta = _NO_TIME,
        local: LocalCache | None = None,
    ) -> Callable[[Callable[P, Any]], CachedFunction[P, Response]]:
        """Cache the responses of a view, with ETags: 304 for a client that has the page.

        The view's parameters are the fields of the key, and all that it may depend on: it runs without the
        visitor's query, cookies, headers and session. Responses with status 200 are stored, and a 404 for
        `missing`; others are sent as they are. After a commit, `delete(...)` removes a page.

        Args:
            pattern: The pattern of the keys, such as `"product:{name}"`.
            fresh: How long a page is fresh.
            stale: How long it is kept after that, to be served while it is loaded again or cannot be.
            missing: How long to remember that the view responded with 404.
            local: Keep pages in this process, too.

        """

        def decorate(view: Callable[P, Any]) -> CachedFunction[P, Response]:
            declared = declare_cache(
                self.catalogues[0],
                pattern,
                view,
                value_type=StoredPage,
                fresh=fresh,
                stale=stale,
                missing=missing,
                local=local,
            )
            return replacing(view, cached_view(view, declared, self._opened))

        return decorate

    def _opened(self) -> SyncStore:
        store = self._store
        if store is None:
            with self._opening:
                if self._store is None:
                    options = {"required": False, **self._options}
                    self._store = sync.connect(self.url, *self.catalogues, **options)
                store = self._store
        return store

    def _stored_sessions(self) -> StoredSessions:
        if self.sessions is None:
            raise InvalidDeclaration("Ephemera", "it has no sessions", "give it a session_lifetime")
        return StoredSessions(self._opened(), self.sessions)

    def _current_user(self, _request: object) -> str | None:
        return user_in(dict(session), self._user_key)

    def _check(self, limit: RequestLimit) -> TextHeaders:
        try:
            return limit.check(self._opened(), request, request.environ)
        except Problem as problem:
            raise as_http_exception(problem) from None


def _send_with_response(headers: TextHeaders) -> None:
    """Add headers to the response of this request, whatever it will be."""

    @after_this_request
    def add(response: Response) -> Response:
        for name, value in headers:
            response.headers.add(name, value)
        return response
