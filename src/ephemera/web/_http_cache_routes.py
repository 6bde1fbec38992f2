"""Resources as FastAPI routes, in one line each, with their documentation. Needs FastAPI.

    add_resource(app, "/api/league/table", TABLE, tags=["league"])
    add_resource(router, "/api/matches/{match_id}/live", LIVE)
    add_resource(app, "/api/predictions/mine", MINE, user=signed_in_user)
    add_resource(app, "/api/predictions", ACTIVE, query={"range": "6d"})
    add_prewarm(app, "/api/cache/prewarm", SITE, token=os.environ["CACHE_PREWARM_TOKEN"])

A request goes to `Served` directly: FastAPI routes and documents it. Dependencies would not run, so a route
that has some, of its own or of a router, is refused: limits and sessions are middlewares. `query` names
fields that come from the query, with what they are when left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, FastAPI, Query
from fastapi.routing import APIRoute
from starlette.responses import Response

from ephemera.keyspace import FieldValue, Store
from ephemera.patterns.http_cache import HttpCache, Resource
from ephemera.web._asgi import ASGIApp, Receive, Scope, Send
from ephemera.web._http_cache import Served, User, state_store
from ephemera.web._http_cache_prewarm import PrewarmEndpoint

_NOTHING: dict[str, Any] = {}
_PROBLEM = {"application/problem+json": {"schema": {"type": "object"}}}
_WAIT = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}}
_ABOUT = {
    "ETag": {"description": "The tag of this content", "schema": {"type": "string"}},
    "X-Resource-Version": {"description": "Grows with every change", "schema": {"type": "string"}},
    "Cache-Control": {"schema": {"type": "string"}},
    "Vary": {"schema": {"type": "string"}},
}


class _Direct(APIRoute):
    """A route that is documented as FastAPI does, and answered by an ASGI application."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **about: Any) -> None:
        super().__init__(path, endpoint, **about)
        self._refuse(self.dependencies)

    def _refuse(self, dependencies: Sequence[Any]) -> None:
        """Dependencies of the route, its router or the application would be checks that nobody makes."""
        if dependencies:
            raise TypeError(
                f"{self.path}: dependencies do not run for a cached resource; use a middleware, or user="
            )

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Those that a router got when it was included are known to its requests alone.
        included = scope.get("fastapi", _NOTHING).get("effective_route_context")
        if included is not None:
            self._refuse(included.dependencies)
        answers: ASGIApp = self.endpoint.answers  # type: ignore[attr-defined]
        await answers(scope, receive, send)


def add_resource(
    app: FastAPI | APIRouter,
    path: str,
    resource: Resource[Any],
    *,
    store: Callable[[Scope], Store] = state_store,
    user: User | None = None,
    query: Mapping[str, str] | None = None,
    fields: Callable[[Scope], Mapping[str, FieldValue]] | None = None,
    **about: Any,
) -> None:
    """Serve a resource at a path; `about` is what FastAPI takes of a route, such as tags and summary.

    `responses` adds to what the resource answers itself, such as the 429 of a middleware.
    """
    choose = _from_query(query, fields) if query else fields
    served = Served(resource, store=store, fields=choose, user=user)
    parameters = [name for name in resource.fields if f"{{{name}}}" in path]
    if resource.private in parameters:
        raise TypeError(f"{path}: {resource.private} comes from user=, not from the path")
    missing = {*resource.fields} - {*parameters, *(query or ()), resource.private}
    if missing and fields is None:
        raise TypeError(
            f"{path}: nothing gives {', '.join(sorted(missing))}; use the path, query= or fields="
        )
    signature = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=str) for name in parameters
    ]
    signature += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=Query(default), annotation=str)
        for name, default in (query or {}).items()
    ]
    responses = {**_responses(resource), **about.pop("responses", {})}
    told = {"summary": resource.cache.keyspace.purpose, **about, "responses": responses}
    _add(app, path, served, signature, {"methods": ["GET"], **told})
    # OpenAPI would name both methods alike, so HEAD is served and not told of.
    _add(app, path, served, signature, {"methods": ["HEAD"], **about, "include_in_schema": False})


def add_prewarm(
    app: FastAPI | APIRouter,
    path: str,
    site: HttpCache[Any],
    *,
    token: str,
    store: Callable[[Scope], Store] = state_store,
    **about: Any,
) -> None:
    """Let whoever has the token prewarm the site by a POST."""
    responses = {
        202: {"description": "It has begun, or is under way"},
        403: {"description": "The token is missing or wrong", "content": _PROBLEM},
    }
    about = {"status_code": 202, "summary": f"Prewarm {site.name}", "responses": responses, **about}
    _add(app, path, PrewarmEndpoint(site, token, store=store), [], {"methods": ["POST"], **about})


def _add(
    app: FastAPI | APIRouter,
    path: str,
    answers: ASGIApp,
    signature: list[inspect.Parameter],
    about: dict[str, Any],
) -> None:
    async def endpoint() -> Response:
        raise NotImplementedError  # `_Direct` answers in its place

    name = "".join(char if char.isalnum() else "_" for char in path.strip("/"))
    endpoint.__name__ = about.setdefault("name", name)
    endpoint.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    endpoint.answers = answers  # type: ignore[attr-defined]
    router = app.router if isinstance(app, FastAPI) else app
    about.setdefault("response_class", Response)
    router.add_api_route(path, endpoint, route_class_override=_Direct, **about)


def _from_query(
    query: Mapping[str, str], fields: Callable[[Scope], Mapping[str, FieldValue]] | None
) -> Callable[[Scope], Mapping[str, FieldValue]]:
    def choose(scope: Scope) -> dict[str, FieldValue]:
        given = parse_qs(scope["query_string"].decode("latin-1"))
        found: dict[str, FieldValue] = {
            name: given.get(name, [default])[0] for name, default in query.items()
        }
        if fields is not None:
            found.update(fields(scope))
        return found

    return choose


def _responses(resource: Resource[Any]) -> dict[int | str, dict[str, Any]]:
    """Every status that `Served` may answer with."""
    found: dict[int | str, dict[str, Any]] = {
        200: {
            "description": "The page",
            "headers": _ABOUT,
            "content": {resource.representation.media_type: {}},
        },
        202: {"description": "It is being prepared", "headers": _WAIT},
        304: {"description": "The client has it", "headers": _ABOUT},
        404: {"description": "There is no such page", "content": _PROBLEM},
        503: {"description": "It cannot be made at the moment", "headers": _WAIT, "content": _PROBLEM},
    }
    if resource.fields:
        found[400] = {"description": "A part of its name is not usable", "content": _PROBLEM}
    if resource.private is not None:
        found[401] = {"description": "Nobody is signed in", "content": _PROBLEM}
    return found
