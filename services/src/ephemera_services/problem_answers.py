"""Every error of a service as a problem document (RFC 9457), and an OpenAPI document that says so.

Handlers turn what routes raise into problems: `Problem` itself, HTTP errors such as 404 and 405, input that
does not validate (422, which says where and never repeats what was given), Redis or SQL away (503 with
Retry-After). What nobody expected is a 500 that says nothing, and is logged (`logs`, `requests`).

In the OpenAPI document a route names only what is its own, `responses=problems(403, 404)`. What follows from
its form is added: 401 where it is secured, 400, 413 and 422 where it takes a body, and 503 everywhere but
where `untouched` says that neither Redis nor SQL is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from ephemera.errors import ConnectionFailed, LoadTimeout
from ephemera.web._problems import Problem, unavailable

_MOST_ERRORS = 20  # of one invalid request that are told
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
    """For a route's `responses`: the problems that are its own to give."""
    return {status: _answer(status) for status in statuses}


UNTOUCHED: dict[str, Any] = {"x-untouched": True}
"""For a route's `openapi_extra`: it asks neither Redis nor SQL, so that it never answers 503."""


def install(app: FastAPI) -> None:
    """Have an application answer with problem documents, and say so in its OpenAPI document."""
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Any]]] = {
        Problem: _itself,
        HTTPException: _of_http,
        RequestValidationError: _of_input,
        **dict.fromkeys((ConnectionFailed, LoadTimeout), _redis_away),
        **dict.fromkeys((OperationalError, InterfaceError, PoolTimeout), _sql_away),
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _complete(plain())
        return plain()

    app.openapi = openapi  # type: ignore[method-assign]


def problem(status: int, detail: str, **more: Any) -> Problem:
    """A problem with the usual title of its status."""
    return Problem(status, HTTPStatus(status).phrase, detail, **more)


def unauthorized(detail: str, *, token: bool = True) -> Problem:
    """401: no access token was sent (`token=False`), or one that is not valid."""
    challenge = b'Bearer error="invalid_token"' if token else b"Bearer"
    return problem(401, detail, headers=[(b"www-authenticate", challenge)])


async def _itself(_: Request, raised: Problem) -> Problem:
    return raised


async def _of_http(request: Request, raised: HTTPException) -> Problem:
    headers = [(name.encode(), value.encode()) for name, value in (raised.headers or {}).items()]
    if raised.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = [(b"allow", ", ".join(_allowed(request)).encode())]
    phrase = HTTPStatus(raised.status_code).phrase
    detail = "" if raised.detail == phrase else str(raised.detail)
    return Problem(raised.status_code, phrase, detail, headers=headers)


def _allowed(request: Request) -> list[str]:
    """The methods of a path; Starlette names only those of the first route that has it."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    matching = (
        route for route in request.app.routes if isinstance(route, Route) and route.path_regex.fullmatch(path)
    )
    return sorted({method for route in matching for method in route.methods or ()})


async def _of_input(_: Request, raised: RequestValidationError) -> Problem:
    errors = [
        {"at": ".".join(map(str, each["loc"]))[:200], "problem": str(each["msg"])[:200]}
        for each in raised.errors()[:_MOST_ERRORS]
    ]
    return problem(422, "The request is not as this route takes it.", errors=errors)


async def _redis_away(_: Request, __: Exception) -> Problem:
    return unavailable()


async def _sql_away(_: Request, __: Exception) -> Problem:
    return unavailable("The database cannot be asked at the moment; please try again.", retry_after=2)


def _complete(document: dict[str, Any]) -> None:
    """Add what follows from a route's form, in place."""
    for path in document["paths"].values():
        for operation in path.values():
            _complete_operation(operation)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = _SCHEMA
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)


def _complete_operation(operation: dict[str, Any]) -> None:
    answers: dict[str, Any] = operation["responses"]
    added = set() if operation.pop("x-untouched", False) else {503}
    if "security" in operation:
        added.add(401)
    if "requestBody" in operation:
        added |= {400, 413, 422}
    if "422" in answers:  # FastAPI's own, where there are parameters
        added.add(422)
    answers |= {str(status): _answer(status) for status in added if status != 503 or "503" not in answers}
    operation["responses"] = dict(sorted(answers.items()))


def _answer(status: int) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    answer: dict[str, Any] = {"description": HTTPStatus(status).phrase, "content": content}
    if status in _HEADERS:
        answer["headers"] = _HEADERS[status]
    return answer
