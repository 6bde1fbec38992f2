"""The slides service answers as its OpenAPI document says, whatever is sent to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.conformance import conform
from tests.services.services import Served
from tests.services.slides_users import ADMIN, Person

ENDING = (
    "/auth/logout",
    "/admin/users/{user_id}/role",
    "/admin/users/{user_id}/blocked",
)
"""What may end the session that it is tried with, or change its limits."""
WITHOUT_ENDING = [word for path in ENDING for word in ("--exclude-path", path)]


@pytest.fixture(scope="module")
def document(slides: Served) -> Any:
    """The service's OpenAPI document."""
    return slides.client.get("/openapi.json").json()


@pytest.mark.campaign
def test_it_conforms_for_an_administrator(slides: Served) -> None:
    """No 5xx, no undeclared status, no violation of a schema, as an administrator."""
    conform(slides.url, *_cookie(slides), *WITHOUT_ENDING, examples=8)
    done = {line.get("route") for line in slides.lines() if line.get("status") in (200, 201, 202)}
    tried = {"/auth/me", "/api-keys", "/admin/users", "/presentations", "/usage"}
    assert tried <= done, "it was let in"


@pytest.mark.campaign
def test_it_conforms_for_strangers(slides: Served) -> None:
    """The same without authentication."""
    conform(slides.url, *WITHOUT_ENDING, examples=3)


@pytest.mark.campaign
@pytest.mark.parametrize("path", ENDING)
def test_ending_a_session_conforms(slides: Served, path: str) -> None:
    """The same for what ends the session that it is tried with."""
    conform(slides.url, *_cookie(slides), "--include-path", path, examples=8)


def _cookie(slides: Served) -> tuple[str, str]:
    return "--header", f"Cookie: {Person(slides, ADMIN).cookie}"


def test_every_error_is_a_problem_document(document: Any) -> None:
    """Each status from 400 on, of each operation, is declared as application/problem+json."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert list(answer["content"]) == ["application/problem+json"], (path, method, status)
                    assert ("Retry-After" in answer.get("headers", {})) == (status in ("429", "503"))


def test_secured_operations_say_so(document: Any) -> None:
    """Whatever takes a session or a key declares both, with 401, 429 and 503; only these are open."""
    open_to_all = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path == "/metrics":
                assert operation["security"] == [{"MetricsToken": []}]
            elif path.startswith("/operator/"):
                assert operation["security"] == [{"OperatorToken": []}]
            elif "security" in operation:
                assert operation["security"] == [{"Session": []}, {"ApiKey": []}]
                assert {"401", "429", "503"} <= set(operation["responses"])
            else:
                open_to_all.add((method, path))
    assert open_to_all == {
        ("post", "/auth/login"),
        ("post", "/auth/logout"),
        ("get", "/p/{token}"),
        ("get", "/healthz"),
        ("get", "/readyz"),
    }
