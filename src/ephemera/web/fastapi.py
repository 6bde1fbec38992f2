"""Everything that a FastAPI service needs of `ephemera.web`. Needs FastAPI (the extra `web`).

    eph = Ephemera("redis://localhost", catalogue, sessions=SESSIONS)
    app = eph.app()                                     # or FastAPI(lifespan=eph.lifespan); eph.install(app)
    Me = Annotated[Session, Depends(eph.signed_in)]

    @app.post("/login")
    @eph.limit("3/hour", by="address")
    async def login(user: str, session: Annotated[RequestSession[Session], Depends(eph.session)]) -> None:
        await session.start(Session(user))

    @app.get("/profiles/{user_id}")
    @eph.cached("profile:{user_id}", fresh=timedelta(minutes=5))
    async def profile(user_id: str) -> Profile | None: ...

    @app.get("/me")
    async def me(session: Me) -> Profile | None:
        return await profile(session.user_id)

*Keys.* A limit or a cache written beside a route is declared in the first catalogue when the module is
imported: `limit:NAME:{subject}`, `limits:NAME:freed` and `limits:NAME_denied`; a cache's pattern with its
`loading:...` and `loaded:...`; a page's pattern likewise, and `prewarm:pages:...`. They are ordinary
declarations, and appear in documentation, audit and access rules.

*The store* is opened by the lifespan, and the service also starts while its server is down. Cached functions
use the open store, so they can be called from anywhere; without one they say how to open it.

*Errors* are problem documents: a denied limit is 429, a missing session 401, an unusable path or query
parameter of a key 400, and what needs Redis while it is down 503. `install` adds them to the OpenAPI document
of each route that has such a dependency, and the cookie as its security scheme.

*Other ways.* The middlewares of `ephemera.web` work without the object, and so do `SignedIn`,
`request_session` and `Limited`, which takes the claims of several rules all or none, and `send_problem`.
"""

from importlib.util import find_spec

from ephemera.errors import InvalidCookie, MissingExtra

if find_spec("fastapi") is None:
    raise MissingExtra("ephemera.web.fastapi needs fastapi", "web", "fastapi")

from ephemera.web._asgi import Problem, unavailable
from ephemera.web._client_address import ClientAddress
from ephemera.web._cookies import Cookie
from ephemera.web._endpoints import HealthEndpoint, MetricsEndpoint, PrewarmEndpoint
from ephemera.web._ephemera import Ephemera
from ephemera.web._fastapi_dependencies import Limited, SignedIn, request_session, send_problem
from ephemera.web._fastapi_routes import add_prewarm, add_resource
from ephemera.web._gc_tuning import tune_gc
from ephemera.web._hardening_middleware import LOOPBACK_HOSTS, HardeningMiddleware, security_headers
from ephemera.web._limits import LimitMiddleware, limit_headers, limit_refusal
from ephemera.web._openapi import LIMIT_RESPONSES
from ephemera.web._route_cache import CachedFunction, PageFunction
from ephemera.web._route_limits import RouteLimit, UnnamedLimit
from ephemera.web._sessions import RequestSession, SessionMiddleware
from ephemera.web._starlette import EVENT_RESPONSES, ProgressResponse, fanout_websocket, progress_websocket
from ephemera.web._streams import Allowed, last_event_id

__all__ = [
    "EVENT_RESPONSES",
    "LIMIT_RESPONSES",
    "LOOPBACK_HOSTS",
    "Allowed",
    "CachedFunction",
    "ClientAddress",
    "Cookie",
    "Ephemera",
    "HardeningMiddleware",
    "HealthEndpoint",
    "InvalidCookie",
    "LimitMiddleware",
    "Limited",
    "MetricsEndpoint",
    "PageFunction",
    "PrewarmEndpoint",
    "Problem",
    "ProgressResponse",
    "RequestSession",
    "RouteLimit",
    "SessionMiddleware",
    "SignedIn",
    "UnnamedLimit",
    "add_prewarm",
    "add_resource",
    "fanout_websocket",
    "last_event_id",
    "limit_headers",
    "limit_refusal",
    "progress_websocket",
    "request_session",
    "security_headers",
    "send_problem",
    "tune_gc",
    "unavailable",
]
