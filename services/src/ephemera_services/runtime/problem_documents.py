"""Every error of a service as a problem document (RFC 9457), in its OpenAPI document as well.

Exception handlers turn what routes raise into problem documents: `Problem` itself, HTTP errors such as 404
and 405, invalid input (422, which says where the error is and repeats neither values nor names that were
sent), a value that the database cannot hold (422), and an unavailable Redis or database (503 with
Retry-After). Any other exception becomes a 500 without details and is logged (`middleware`).

For the OpenAPI document a route lists only its specific problems, `responses=problems(403, 404)`. The others
are derived: 401 where the route is secured, 400, 413 and 422 where it has a body, and 503 everywhere except
where `NO_BACKEND` says that the route uses neither Redis nor SQL.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from ephemera.errors import ConnectionFailed, LoadTimeout, LockLost, LockTimeout, ServerError
from ephemera.web import Problem, unavailable

_log = logging.getLogger("ephemera_services.requests")
_MAX_ERRORS = 20  # reported for one invalid request
_PLACES = frozenset(("body", "query", "path", "header", "cookie"))
_MESSAGES = {  # of validation errors whose own text repeats what was sent
    "union_tag_invalid": "Input has an unknown tag",
    "uuid_parsing": "Input should be a valid UUID",
}
_SECONDS = {"description": "Seconds to wait", "schema": {"type": "integer", "minimum": 0}}
_CHALLENGE = {"description": "How to authenticate", "schema": {"type": "string"}}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": _CHALLENGE},
    429: {"Retry-After": _SECONDS},
    503: {"Retry-After": _SECONDS},
}
_SCHEMA: dict[str, Any] = {
    "title": "Problem",
    "description": "What went wrong (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["at", "problem"],
                "properties": {"at": {"type": "string"}, "problem": {"type": "string"}},
            },
        },
    },
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route: the problems that are specific to it."""
    return {status: _response(status) for status in statuses}


NO_BACKEND: dict[str, Any] = {"x-no-backend": True}
"""For a route's `openapi_extra`: it uses neither Redis nor SQL, so it never answers 503."""


def install_problem_handlers(app: FastAPI) -> None:
    """Make an application answer with problem documents, and add them to its OpenAPI document."""
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Any]]] = {
        Problem: _identity,
        HTTPException: _from_http_error,
        RequestValidationError: _from_invalid_input,
        DataError: _unstorable,
        **dict.fromkeys((ConnectionFailed, LoadTimeout, LockTimeout, LockLost), _redis_unavailable),
        ServerError: _redis_refused,
        **dict.fromkeys((OperationalError, InterfaceError, PoolTimeout), _sql_unavailable),
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _complete(generate())
        return generate()

    app.openapi = openapi  # type: ignore[method-assign]


def problem(status: int, detail: str, **more: Any) -> Problem:
    """Return a problem with the standard title of its status."""
    return Problem(status, HTTPStatus(status).phrase, detail, **more)


def unauthorized(detail: str, *, token: bool = True) -> Problem:
    """Return a 401: an invalid token was sent, or none (`token=False`)."""
    challenge = b'Bearer error="invalid_token"' if token else b"Bearer"
    return problem(401, detail, headers=[(b"www-authenticate", challenge)])


async def _identity(_: Request, raised: Problem) -> Problem:
    if raised.status == HTTPStatus.SERVICE_UNAVAILABLE:
        cause = raised.__cause__ or raised.__context__  # `from None` hides it from tracebacks only
        _log_503(raised.document.get("detail", "") if cause is None else cause)
    return raised


def _log_503(reason: object) -> None:
    """Log why a request was answered with 503; the line has the request's id."""
    text = str(getattr(reason, "orig", None) or reason).partition("\n")[0]  # not the statement
    kind = f"{type(reason).__name__}: " if isinstance(reason, BaseException) else ""
    _log.warning("answered with 503: %s%s", kind, text)


async def _from_http_error(request: Request, raised: HTTPException) -> Problem:
    if raised.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        _log_503(raised.__cause__ or raised.__context__ or raised.detail)
    headers = [(name.encode(), value.encode()) for name, value in (raised.headers or {}).items()]
    if raised.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = [(b"allow", ", ".join(_allowed(request)).encode())]
    phrase = HTTPStatus(raised.status_code).phrase
    detail = "" if raised.detail == phrase else str(raised.detail)
    return Problem(raised.status_code, phrase, detail, headers=headers)


def _allowed(request: Request) -> list[str]:
    """The methods of a path; Starlette lists only those of the first route that matches."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    matching = (
        route for route in request.app.routes if isinstance(route, Route) and route.path_regex.fullmatch(path)
    )
    return sorted({method for route in matching for method in route.methods or ()})


async def _from_invalid_input(request: Request, raised: RequestValidationError) -> Problem:
    names = _declared_names(request.app)
    errors = [
        {"at": _place(each, names), "problem": _MESSAGES.get(each["type"], str(each["msg"]))[:200]}
        for each in raised.errors()[:_MAX_ERRORS]
    ]
    return problem(422, "The request is invalid.", errors=errors)


def _place(error: Any, names: frozenset[str]) -> str:
    """Where an error is, by the names that the OpenAPI document has; `*` in place of those that were sent."""
    parts = error["loc"]
    known = ["*" if isinstance(part, str) and part not in names else str(part) for part in parts]
    if error["type"] == "extra_forbidden":
        known[-1] = "*"
    return ".".join(known)[:200]


def _declared_names(app: FastAPI) -> frozenset[str]:
    """The names of all parameters and properties of an application; collected once."""
    names: frozenset[str] | None = getattr(app.state, "declared_names", None)
    if names is None:
        app.state.declared_names = names = frozenset(_names_in(app.openapi())) | _PLACES
    return names


def _names_in(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        yield from document.get("properties", ())
        if isinstance(name := document.get("name"), str):
            yield name
        for each in document.values():
            yield from _names_in(each)
    elif isinstance(document, list):
        for each in document:
            yield from _names_in(each)


async def _unstorable(_: Request, __: Exception) -> Problem:
    return problem(422, "The database cannot hold a value of this request: it is out of range.")


async def _redis_unavailable(_: Request, raised: Exception) -> Problem:
    _log_503(raised)
    return unavailable()


async def _redis_refused(_: Request, raised: ServerError) -> Problem:
    """Redis is full, forbids a command, or holds what another program wrote under a key of ours."""
    _log.error("Redis refused %s: %s", raised.command, raised.code)  # keys contain ids
    return unavailable()


async def _sql_unavailable(_: Request, raised: Exception) -> Problem:
    _log_503(raised)
    return unavailable("The database is unavailable at the moment; please try again.", retry_after=2)


def _complete(document: dict[str, Any]) -> None:
    """Add the derived problems to a document, in place."""
    for path in document["paths"].values():
        for operation in path.values():
            _complete_operation(operation)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = _SCHEMA
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)


def _complete_operation(operation: dict[str, Any]) -> None:
    responses: dict[str, Any] = operation["responses"]
    added = set() if operation.pop("x-no-backend", False) else {503}
    if "security" in operation:
        added.add(401)
    if "requestBody" in operation:
        added |= {400, 413, 422}
    if "422" in responses:  # FastAPI's own, where there are parameters
        added |= {400, 422}
    responses |= {
        str(status): _response(status) for status in added if status != 503 or "503" not in responses
    }
    operation["responses"] = dict(sorted(responses.items()))


def _response(status: int) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase, "content": content}
    if status in _HEADERS:
        response["headers"] = _HEADERS[status]
    return response
