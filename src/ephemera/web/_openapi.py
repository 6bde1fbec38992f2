"""Problem documents in OpenAPI: what a route may answer besides its result.

FastAPI documents the security schemes that the dependencies of a route name, wherever they are declared. Our
dependencies use that: those of limits and pages name a scheme which stands for their responses, and
`document_problems` replaces it with them. So a route's `responses` need not repeat what its dependencies do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.models import APIKey, APIKeyIn
from fastapi.security.base import SecurityBase

Responses: TypeAlias = dict[int | str, dict[str, Any]]
"""The option `responses` of a FastAPI route."""

SESSION_SCHEME = "Session"
"""The security scheme of routes that need a session: its cookie."""
LIMIT_MARKER, PAGE_MARKER = "ephemera-limit", "ephemera-page"
FIELDS_MARKER, OPTIONAL_SESSION_MARKER = "ephemera-fields", "ephemera-optional-session"
_MARKERS = {LIMIT_MARKER, PAGE_MARKER, FIELDS_MARKER, OPTIONAL_SESSION_MARKER}
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

_TEXT = {"type": "string"}
_PROBLEM_SCHEMA = {
    "title": "ProblemDocument",
    "description": "What went wrong, for people and for programs (RFC 9457)",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {**_TEXT, "format": "uri-reference"},
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
    },
}
PROBLEM_CONTENT: dict[str, Any] = {"application/problem+json": {"schema": _PROBLEM_SCHEMA}}
_PROBLEM_REFERENCE: dict[str, Any] = {
    "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
}
RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}}
PAGE_HEADERS: dict[str, Any] = {
    "ETag": {"description": "The tag of this content", "schema": _TEXT},
    "X-Resource-Version": {"description": "Grows with every change", "schema": _TEXT},
    "Cache-Control": {"schema": _TEXT},
    "Vary": {"schema": _TEXT},
}


def _problem(description: str, *, retry: bool = False) -> dict[str, Any]:
    headers = {"headers": RETRY_AFTER} if retry else {}
    return {"description": description, **headers, "content": PROBLEM_CONTENT}


SESSION_RESPONSES: Responses = {
    401: _problem("There is no valid session"),
    503: _problem("The session cannot be checked at the moment", retry=True),
}
LIMIT_RESPONSES: Responses = {
    429: _problem("A limit is used up", retry=True),
    503: _problem("Limits cannot be counted at the moment", retry=True),
}
"""For a route's `responses`: those of a denied request. `Ephemera.limit` adds them by itself."""
PAGE_RESPONSES: Responses = {
    202: {"description": "The page is being prepared", "headers": RETRY_AFTER},
    304: {"description": "The client has the page", "headers": PAGE_HEADERS},
    404: _problem("There is no such page"),
    503: _problem("The page cannot be loaded at the moment", retry=True),
}
FIELDS_RESPONSES: Responses = {
    400: _problem("A parameter cannot be part of a key, such as one that is too long")
}
_RESPONSES_OF: dict[str, Responses] = {
    SESSION_SCHEME: SESSION_RESPONSES,
    OPTIONAL_SESSION_MARKER: {503: SESSION_RESPONSES[503]},
    FIELDS_MARKER: FIELDS_RESPONSES,
    LIMIT_MARKER: LIMIT_RESPONSES,
    PAGE_MARKER: PAGE_RESPONSES,
}


class Marked(SecurityBase):
    """A dependency whose routes `document_problems` recognizes by the name of its scheme."""

    def __init__(self, marker: str) -> None:
        self.model = APIKey.model_validate({"in": APIKeyIn.header, "name": marker})
        self.scheme_name = marker


class KeyFields(Marked):
    """A dependency that does nothing: it stands for the 400 of parameters that are fields of a key."""

    def __init__(self) -> None:
        super().__init__(FIELDS_MARKER)

    async def __call__(self) -> None:
        """Do nothing."""


def document_problems(app: FastAPI) -> None:
    """Add the problem documents of our dependencies to the OpenAPI document of an application."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        for operation in _operations(document):
            _complete(operation)
        components = document.setdefault("components", {})
        components.setdefault("schemas", {})["ProblemDocument"] = _PROBLEM_SCHEMA
        for marker in _MARKERS:
            components.get("securitySchemes", {}).pop(marker, None)
        return document

    vars(app)["openapi"] = openapi  # what FastAPI's documentation says to replace


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document.get("paths", {}).values():
        yield from (operation for method, operation in path.items() if method in _METHODS)


def _complete(operation: dict[str, Any]) -> None:
    """Add the responses that the schemes of an operation stand for; what a route says itself comes first."""
    required = operation.pop("security", [])
    responses = operation["responses"]
    for scheme in {name: None for each in required for name in each}:
        for status, response in _RESPONSES_OF.get(scheme, {}).items():
            responses.setdefault(str(status), response)
        if scheme == PAGE_MARKER:
            responses["200"].setdefault("headers", PAGE_HEADERS)
    if "text/event-stream" in responses.get("200", {}).get("content", {}):
        responses.setdefault("204", {"description": "There are no more events"})
    for status, response in responses.items():
        if response.get("content") == PROBLEM_CONTENT:
            responses[status] = {**response, "content": _PROBLEM_REFERENCE}
    if kept := [each for each in required if not _MARKERS & each.keys()]:
        operation["security"] = kept
