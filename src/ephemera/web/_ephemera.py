"""The one object of a FastAPI service: its store, sessions, limits, caches and streams. Needs FastAPI.

The store is opened by the application's lifespan and found here, not in the state of a request, so that a
cached function can be called from anywhere. An `Ephemera` therefore has one store at a time.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, Literal, ParamSpec, overload

from fastapi import FastAPI
from starlette.requests import HTTPConnection, Request
from typing_extensions import TypeVar

from ephemera.errors import ConnectionFailed, InvalidDeclaration, InvalidField
from ephemera.keyspace import Catalogue, FieldValue, Store, connect
from ephemera.patterns.cache import Cache, Freshness, LocalCache
from ephemera.patterns.http_cache import HttpCache, Representation
from ephemera.patterns.progress import Progress
from ephemera.patterns.rate_limits import Rule, WhenDown
from ephemera.patterns.sessions import Sessions
from ephemera.web._asgi import Problem, unavailable_because
from ephemera.web._client_address import ClientAddress
from ephemera.web._cookies import DEFAULT_COOKIE, Cookie
from ephemera.web._decorator_order import check_order
from ephemera.web._fastapi_dependencies import OptionalSession, SessionHandle, SignedIn, send_problem
from ephemera.web._function_caches import check_cache_options, declare_cache, purpose_of
from ephemera.web._gc_tuning import tune_gc
from ephemera.web._limit_declarations import check_rate, declare_limit, limits_of
from ephemera.web._openapi import document_problems
from ephemera.web._route_cache import (
    CachedFunction,
    PageFunction,
    cached_function,
    page_function,
    page_loader,
)
from ephemera.web._route_limits import (
    By,
    LimitCheck,
    RouteLimit,
    UnnamedLimit,
    subject_finder,
)
from ephemera.web._sessions import SessionMiddleware
from ephemera.web._starlette import ProgressResponse
from ephemera.web._streams import Allowed, last_event_id

S = TypeVar("S", default=Any)
P = ParamSpec("P")
R = TypeVar("R")

_NO_TIME = timedelta(0)
_PAGES = "pages"


class Ephemera(Generic[S]):
    """Everything of Ephemera that a FastAPI service needs; `eph.app()` is an application that uses it.

    Args:
        url: The server, as for `connect`. It is read when the application starts.
        catalogues: What the store may use; limits and caches beside a route are declared in the first.
        sessions: The declaration of the service's sessions, if it has any.
        cookie: The cookie of the sessions.
        when_down: While Redis is down, "refuse" a request that needs its session with 503, or treat it as
            "anonymous".
        client: Finds the address of a client; give the trusted proxies, if there are any.
        options: Options of `connect`, such as `queue_url`, `credentials` and `resources`. `required` is False
            unless given: the service also starts while the server is down.

    """

    def __init__(
        self,
        url: str,
        *catalogues: Catalogue,
        sessions: Sessions[S] | None = None,
        cookie: Cookie = DEFAULT_COOKIE,
        when_down: Literal["refuse", "anonymous"] = "refuse",
        client: ClientAddress | None = None,
        **options: Any,
    ) -> None:
        if not catalogues or not all(isinstance(each, Catalogue) for each in catalogues):
            raise InvalidDeclaration("Ephemera", "it has no catalogue", "write: Ephemera(url, catalogue)")
        inspect.signature(connect).bind(url, *catalogues, **options)
        self.url = url
        self.catalogues = catalogues
        self._sessions = sessions
        self._cookie = cookie
        self._when_down: Literal["refuse", "anonymous"] = when_down
        self._client = ClientAddress() if client is None else client
        self._options: dict[str, Any] = {"required": False, **options}
        self._store: Store | None = None
        self._pages: HttpCache[None] | None = None
        self._apps: list[FastAPI] = []

    def __repr__(self) -> str:
        return f"<Ephemera of {', '.join(catalogue.name for catalogue in self.catalogues)}>"

    # The application.

    def app(self, **options: Any) -> FastAPI:
        """Return an application with the lifespan, and with what `install` adds; `options` are FastAPI's."""
        app = FastAPI(**{"lifespan": self.lifespan, **options})
        self.install(app)
        return app

    def install(self, app: FastAPI) -> None:
        """Add sessions, error responses and their documentation to an application.

        Call it once, before the application starts. Middlewares that are added later run before the sessions.
        """
        sessions = self._sessions
        if sessions is not None:
            app.add_middleware(
                SessionMiddleware,
                sessions=lambda _: self._opened()[sessions],
                cookie=self._cookie,
                when_down=self._when_down,
            )
        self._apps.append(app)
        app.add_exception_handler(Problem, send_problem)
        app.add_exception_handler(ConnectionFailed, _unavailable)
        app.add_exception_handler(InvalidField, _bad_request)
        document_problems(app)

    @asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        """Open the store while the application runs: `FastAPI(lifespan=eph.lifespan)`.

        A lifespan of your own opens it with `connect`, and yields `{"store": store}` for other code.
        """
        async with self.connect() as store:
            tune_gc()
            yield {"store": store}

    @asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[Store]:
        """Open the store for a block; `options` add to those given before, such as `resources`."""
        for app in self._apps:
            check_order(_endpoints(app.routes))
        async with connect(self.url, *self.catalogues, **{**self._options, **options}) as store:
            with self.use(store):
                yield store

    @contextmanager
    def use(self, store: Store) -> Iterator[None]:
        """Use a store that is open already, for a block: in a test, a worker or a script."""
        if self._store is not None:
            raise RuntimeError(f"{self!r} has an open store already; it takes one at a time")
        self._store = store
        try:
            yield
        finally:
            self._store = None

    def _opened(self) -> Store:
        if self._store is None:
            raise RuntimeError(
                f"{self!r} has no open store: start the application with lifespan=eph.lifespan (in a test, "
                "`with TestClient(app)`), or open one: async with eph.connect()"
            )
        return self._store

    # Dependencies.

    async def store(self) -> Store:
        """A dependency: the open store."""
        return self._opened()

    @cached_property
    def signed_in(self) -> SignedIn[S]:
        """A dependency: the session of a signed-in user; 401 without one, 503 when that is unknown."""
        if self._sessions is None:
            raise InvalidDeclaration(
                "Ephemera", "it has no sessions", "give Ephemera(..., sessions=SESSIONS)"
            )
        return SignedIn(self._sessions.record, cookie=self._cookie)

    @cached_property
    def optional(self) -> OptionalSession[S]:
        """A dependency: the session of a signed-in user, or None."""
        return OptionalSession()

    @cached_property
    def session(self) -> SessionHandle[S]:
        """A dependency: the session of a request, signed in or not, to start, change or end it."""
        return SessionHandle()

    # Limits.

    @overload
    def limit(self, rate: Rule, *, by: By = ...) -> RouteLimit: ...

    @overload
    def limit(self, rate: str, *, by: By = ..., name: str, when_down: WhenDown = ...) -> RouteLimit: ...

    @overload
    def limit(self, rate: str, *, by: By = ..., when_down: WhenDown = ...) -> UnnamedLimit: ...

    def limit(
        self,
        rate: str | Rule,
        *,
        by: By = "address",
        name: str | None = None,
        when_down: WhenDown = "open",
    ) -> RouteLimit | UnnamedLimit:
        """Limit a route: as a decorator below that of FastAPI, or with a name as one of `dependencies=[...]`.

        A denied request gets 429 and does not reach the route. Several limits are checked one after the
        other, and those before a denial have counted the request.

        Args:
            rate: A sliding window such as `"60/minute"` or `"5/10 seconds"`, or a rule that is declared.
            by: Whom it counts. `"address"`: the client's address, or IPv6 network. `"user"`: the signed-in
                user, and others by address. `"header:x-api-key"`: the value of a header, and without it the
                address; check the value elsewhere, as each new one has a limit of its own. Or a function of
                the request that returns the subject, or None for no limit; it may be async.
            name: Its name in keys, headers and responses: by default that of the decorated function.
            when_down: The policy while Redis is down: "open", "closed" or `local_share(of=...)`.

        """
        sessions = self._sessions
        find = subject_finder(by, self._client, None if sessions is None else sessions.user_field)

        def declare(name: str) -> RouteLimit:
            rule = declare_limit(self.catalogues[0], name, rate, when_down)
            limits = limits_of(rule)
            return RouteLimit(LimitCheck(rule, lambda _: self._opened()[limits], find))

        check_rate(rate, name, when_down)
        if isinstance(rate, Rule):
            return declare(rate.name)
        return UnnamedLimit(declare) if name is None else declare(name)

    # Caches.

    def cached(
        self,
        cache: Cache[Any] | str,
        *,
        fresh: timedelta | None = None,
        stale: timedelta = _NO_TIME,
        missing: timedelta = _NO_TIME,
        local: LocalCache | None = None,
        sensitive: bool = False,
    ) -> Callable[[Callable[P, Awaitable[R]]], CachedFunction[P, R]]:
        """Cache the results of an async function, a route or not; its parameters are the fields of the key.

        The function keeps its signature, and gets `delete(...)` with the same one, for after a commit.

        Args:
            cache: The pattern of the keys, such as `"profile:{user_id}"`, or a `Cache` that is declared.
            fresh: How long a result is fresh; with a pattern it is required.
            stale: How long it is kept after that, to be served while it is refreshed or cannot be.
            missing: How long to remember that the result is None; by default not at all.
            local: Keep results in this process, too.
            sensitive: Whether results are personal or secret; consoles and logs then hide them.

        """
        check_cache_options(cache, fresh, stale, missing, local, sensitive)

        def decorate(function: Callable[P, Awaitable[R]]) -> CachedFunction[P, R]:
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
        max_age: timedelta = _NO_TIME,
        private: str | None = None,
    ) -> Callable[[Callable[P, Awaitable[R]]], PageFunction[P, R]]:
        """Serve the results of a GET route as stored pages with ETags: 304 for a client that has the page.

        The route keeps its signature, and gets `bump(...)` with the same one, for after a commit. None is a
        404; an exception is a failed load, so the response is a stale page or 503.

        Args:
            pattern: The pattern of the keys; its fields are the route's parameters.
            fresh: How long a page is fresh.
            stale: How long it is kept after that, to be served while it is loaded again or cannot be.
            missing: How long to remember that the result is None, which is a 404.
            max_age: How long clients may use a page without asking.
            private: The parameter that is the id of the user to whom the page belongs, from a dependency.

        """

        def decorate(function: Callable[P, Awaitable[R]]) -> PageFunction[P, R]:
            if self._pages is None:
                self._pages = HttpCache(self.catalogues[0], _PAGES, needs_source=False)
            resource = self._pages.resource(
                pattern,
                page_loader(function),
                freshness=Freshness(fresh=fresh, stale=stale),
                missing=missing,
                representation=Representation(max_age=max_age, private=private),
                purpose=purpose_of(function),
            )
            return page_function(function, resource, self._opened)

        return decorate

    # Streams.

    def progress(
        self,
        connection: HTTPConnection,
        progress: Progress[Any],
        /,
        *,
        snapshot: Callable[..., Awaitable[Any]],
        allowed: Allowed | None = None,
        **fields: FieldValue,
    ) -> ProgressResponse:
        """Respond with server-sent events, in a route with response_class=ProgressResponse.

        Args:
            connection: The request; a client that reconnects continues after its last event.
            progress: The declaration of the streams.
            snapshot: `await snapshot(**fields)` returns the `Snapshot` for where events may be missing.
            allowed: Whether the client may still listen, asked every ten seconds: `session.is_valid`.
            fields: The fields of the stream's key, such as `job_id`.

        """
        after = last_event_id(connection.scope)
        listener = self._opened()[progress].listen(snapshot=snapshot, after=after, **fields)
        return ProgressResponse(listener, allowed=allowed)


def _endpoints(routes: Iterable[Any]) -> Iterator[Any]:
    """The functions of routes, including those of mounted applications and included routers."""
    for route in routes:
        if endpoint := getattr(route, "endpoint", None):
            yield endpoint
        yield from _endpoints(getattr(getattr(route, "original_router", route), "routes", None) or ())


async def _unavailable(_request: Request, problem: Exception) -> Any:
    return unavailable_because(problem)


async def _bad_request(_request: Request, problem: Exception) -> Any:
    field = getattr(problem, "field", "input")
    return Problem(400, "Bad Request", f"This request cannot be served: its {field} is not usable.")
