"""SEC14: malformed input reached code that could not handle it, and became a 500."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.defects.offline_services import NAMES, client_of

BODIES = (
    rb'{"password": "\ud800", "text": "\udfff"}',
    rb'{"\ud800": 1}',
    rb'{"name": "a\u0000b"}',
    b'{"name": "\xff\xfe"}',
    b'{"count": 1e999}',
    b'{"count": ' + b"9" * 5000 + b"}",
    b'{"count": NaN}',
    b"[" * 10_000,
    b"\xef\xbb\xbf{}",
    b'{"unfinished": ',
)
QUERIES = ("q=%00", "q=%ff", "q=%ED%A0%80", "%00=1")


@pytest.mark.parametrize("name", NAMES)
async def test_sec14_no_route_sees_malformed_json(name: str) -> None:
    """For every operation with a JSON body, what cannot be handled is a problem document with 400."""
    async with client_of(name, development=True) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
        operations = [
            (method, re.sub(r"\{.*?\}", "1", path))
            for path, methods in paths.items()
            for method, operation in methods.items()
            if "application/json" in operation.get("requestBody", {}).get("content", {})
        ]
        assert operations
        for method, path in operations:
            for body in BODIES:
                headers = {"content-type": "application/json"}
                answer = await client.request(method.upper(), path, content=body, headers=headers)
                assert answer.status_code == 400, (method, path, body[:40], answer.text)
                assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", NAMES)
async def test_sec14_no_route_sees_a_malformed_query_or_path(name: str) -> None:
    """A NUL or bytes that are not UTF-8 in a query or a path are a problem document with 400."""
    async with client_of(name) as client:
        for target in (*(f"/healthz?{query}" for query in QUERIES), "/a%00b", "/a%ffb"):
            answer = await client.get(target)
            assert answer.status_code == 400, target
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", NAMES)
def test_sec14_every_number_of_a_request_is_bounded(name: str) -> None:
    """Huge numbers are well-formed JSON, so each number that a service takes has a maximum."""
    service = importlib.import_module(f"ephemera_services.{name}")
    app = service.create_app(service.Settings(development=True))
    document = app.openapi()
    assert list(_unbounded(document, document["paths"])) == []


def _unbounded(document: Any, part: Any, place: str = "", asked: bool = False) -> Iterator[str]:
    """The places of numbers without a maximum in what requests have."""
    if isinstance(part, list):
        for number, each in enumerate(part):
            yield from _unbounded(document, each, f"{place}.{number}", asked)
    if not isinstance(part, dict):
        return
    if (
        asked
        and part.get("type") in ("integer", "number")
        and not {"maximum", "exclusiveMaximum"} & set(part)
    ):
        yield place
    if asked and isinstance(reference := part.get("$ref"), str):
        name = reference.rpartition("/")[2]
        if name not in place:
            schema = document["components"]["schemas"][name]
            yield from _unbounded(document, schema, f"{place}.{name}", asked)
    for name, each in part.items():
        if name != "responses":
            request = asked or name in ("parameters", "requestBody")
            yield from _unbounded(document, each, f"{place}.{name}", request)
