"""Cached resources as documented FastAPI routes, one line each. Needs FastAPI.

    add_resource(app, "/api/league/table", TABLE, tags=["league"])
    add_resource(router, "/api/matches/{match_id}/live", LIVE)
    add_resource(app, "/api/predictions/mine", MINE, user=signed_in_user)
    add_resource(app, "/api/predictions", ACTIVE, query={"range": "6d"})
    add_resource(app, "/api/table", TABLE, variants={"season": SEASON_TABLE})
    add_prewarm(app, "/api/cache/prewarm", SITE, token=os.environ["CACHE_PREWARM_TOKEN"])

FastAPI routes and documents a request, and `ResourceApp` answers it directly. Dependencies would not run, so
a route that has some, of its own or of a router, is refused: use middlewares for limits and sessions. `query`
names fields that come from the query, with their defaults; `variants` serve requests with a parameter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qs

from fastapi import APIRouter, FastAPI, Query
from fastapi.routing import APIRoute
from starlette.responses import Response

from ephemera.keyspace import FieldValue, Store
from ephemera.patterns.http_cache import HttpCache, Resource
from ephemera.web._asgi import ASGIApp, Receive, Scope, Send
from ephemera.web._endpoints import PrewarmEndpoint
from ephemera.web._http_cache import ResourceApp, UserOf, store_from_state
from ephemera.web._openapi import PAGE_HEADERS, PAGE_RESPONSES, PROBLEM_CONTENT, Responses

_EMPTY: dict[str, Any] = {}


class _AppRoute(APIRoute):
    """A route that FastAPI documents and an ASGI application answers."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self._refuse(self.dependencies)

    def _refuse(self, dependencies: Sequence[Any]) -> None:
        """Refuse dependencies of the route, its router or the application, as they would not run."""
        if dependencies:
            raise TypeError(
                f"{self.path}: dependencies do not run for a cached resource; use a middleware, or user="
            )

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Dependencies added when a router was included are known only to its requests.
        included = scope.get("fastapi", _EMPTY).get("effective_route_context")
        if included is not None:
            self._refuse(included.dependencies)
        await cast("_Endpoint", self.endpoint).app(scope, receive, send)


def add_resource(
    app: FastAPI | APIRouter,
    path: str,
    resource: Resource[Any],
    *,
    store: Callable[[Scope], Store] = store_from_state,
    user: UserOf | None = None,
    query: Mapping[str, str] | None = None,
    fields: Callable[[Scope], Mapping[str, FieldValue]] | None = None,
    variants: Mapping[str, Resource[Any]] | None = None,
    **options: Any,
) -> None:
    """Serve a resource at a path.

    Args:
        app: The application, or a router.
        path: The path; fields of the key are its parameters.
        resource: What is served.
        store: Finds the store of a scope; by default the one in its state.
        user: Finds the id of a scope's user, for a private resource.
        query: The fields of the key that come from the query, each with its default.
        fields: Finds other fields of the key in the scope.
        variants: Resources that serve the requests with a query parameter, by its name: it is a field of
            theirs, besides those of the path.
        options: Those of a FastAPI route, such as tags and summary; `responses` adds to those of the resource
            itself, such as the 429 of a middleware.

    """
    choose = _from_query(query, fields) if query else fields
    served: ASGIApp = ResourceApp(resource, store=store, fields=choose, user=user)
    if variants:
        served = _Variants(served, variants, store)
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
    signature += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=Query(None), annotation=str | None)
        for name in variants or ()
    ]
    responses = {**_responses(resource), **options.pop("responses", {})}
    documented = {"summary": resource.cache.keyspace.purpose, **options, "responses": responses}
    _add(app, path, served, signature, {"methods": ["GET"], **documented})
    # OpenAPI would give both methods the same name, so HEAD is served but not documented.
    _add(app, path, served, signature, {"methods": ["HEAD"], **options, "include_in_schema": False})


def add_prewarm(
    app: FastAPI | APIRouter,
    path: str,
    site: HttpCache[Any],
    *,
    token: str,
    store: Callable[[Scope], Store] = store_from_state,
    **options: Any,
) -> None:
    """Let a POST with the token prewarm the site.

    Args:
        app: The application, or a router.
        path: The path of the route.
        site: What is prewarmed.
        token: The bearer token that a request must have.
        store: Finds the store of a scope; by default the one in its state.
        options: Those of a FastAPI route.

    """
    responses = {
        202: {"description": "It has started, or is running already"},
        403: {"description": "The token is missing or wrong", "content": PROBLEM_CONTENT},
    }
    options = {"status_code": 202, "summary": f"Prewarm {site.name}", "responses": responses, **options}
    _add(app, path, PrewarmEndpoint(site, token, store=store), [], {"methods": ["POST"], **options})


class _Endpoint:
    """What FastAPI documents of a route: its name and its parameters."""

    def __init__(self, name: str, app: ASGIApp, parameters: list[inspect.Parameter]) -> None:
        self.__name__ = name
        self.__signature__ = inspect.Signature(parameters)
        self.app = app

    async def __call__(self) -> Response:
        raise NotImplementedError  # `_AppRoute` responds instead


class _Variants:
    """Serves requests with a query parameter from another resource, and all others from the first one."""

    def __init__(
        self, plain: ASGIApp, variants: Mapping[str, Resource[Any]], store: Callable[[Scope], Store]
    ) -> None:
        self._plain = plain
        self._variants = {
            name: ResourceApp(resource, store=store, fields=_from_query({name: ""}, None))
            for name, resource in variants.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._plain
        if query := scope["query_string"]:
            given = parse_qs(query.decode("latin-1"), keep_blank_values=True)
            app = next((variant for name, variant in self._variants.items() if name in given), app)
        await app(scope, receive, send)


def _add(
    app: FastAPI | APIRouter,
    path: str,
    answering: ASGIApp,
    parameters: list[inspect.Parameter],
    options: dict[str, Any],
) -> None:
    name = "".join(char if char.isalnum() else "_" for char in path.strip("/"))
    endpoint = _Endpoint(options.setdefault("name", name), answering, parameters)
    router = app.router if isinstance(app, FastAPI) else app
    options.setdefault("response_class", Response)
    router.add_api_route(path, endpoint, route_class_override=_AppRoute, **options)


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


def _responses(resource: Resource[Any]) -> Responses:
    """Every status of a `ResourceApp`."""
    content: dict[str, Any] = {resource.representation.media_type: {}}
    found: Responses = {
        200: {"description": "The page", "headers": PAGE_HEADERS, "content": content},
        **PAGE_RESPONSES,
    }
    if resource.fields:
        found[400] = {"description": "A field of the page is invalid", "content": PROBLEM_CONTENT}
    if resource.private is not None:
        found[401] = {"description": "No user is signed in", "content": PROBLEM_CONTENT}
    return found
