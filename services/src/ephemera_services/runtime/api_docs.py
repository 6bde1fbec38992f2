"""`/docs` in development: the OpenAPI document as one page, without scripts.

FastAPI's own page loads its scripts from a CDN, which then runs with the rights of the service's origin.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request, Response

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
summary { cursor: pointer; padding: .3rem 0 }
code { font-size: 14px }
b { display: inline-block; min-width: 4.5rem }
table { border-collapse: collapse; margin: .5rem 0 1rem 1.5rem }
td { padding: .1rem 1rem .1rem 0; vertical-align: top }
"""

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The page."""
    page = "".join(_page(request.app.openapi()))
    return Response(page, media_type="text/html", headers={"content-security-policy": _POLICY})


def _page(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    title = html.escape(info["title"])
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
    yield f"<h1>{title}</h1><p>{html.escape(info.get('description', ''))}</p>"
    yield "<p>The document for tools: <a href=openapi.json>openapi.json</a></p>"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"<details><summary><b>{method.upper()}</b> <code>{html.escape(path)}</code> "
            yield f"{html.escape(operation.get('summary', ''))}</summary>"
            yield f"<p>{html.escape(operation.get('description', ''))}</p><table>"
            yield from _rows(operation)
            yield "</table></details>"
    for name, schema in document["components"]["schemas"].items():
        yield f"<details id='{html.escape(name)}'><summary><code>{html.escape(name)}</code></summary><table>"
        for field, kind in schema.get("properties", {}).items():
            needed = "required" if field in schema.get("required", ()) else ""
            yield _row(field, _kind(kind), needed, kind.get("description", ""))
        yield "</table></details>"


def _rows(operation: dict[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        needed = "required" if parameter.get("required") else ""
        yield _row(f"{parameter['in']}: {parameter['name']}", _kind(parameter["schema"]), needed)
    for media, body in operation.get("requestBody", {}).get("content", {}).items():
        yield _row("body", _kind(body.get("schema", {})), media)
    for status, response in operation["responses"].items():
        kinds = [_kind(each.get("schema", {})) for each in response.get("content", {}).values()]
        yield _row(status, ", ".join(kinds), response["description"])


def _row(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words: the name of another, a type, or alternatives."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("const") or " | ".join(map(str, schema.get("enum", ()))) or schema.get("type", ""))
