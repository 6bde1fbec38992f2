"""The identity service answers as its OpenAPI document says, whatever is sent to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.conformance import conform
from tests.services.identity_users import ANY_PASSWORDS, administrator
from tests.services.services import Served

ENDING = (
    "/auth/logout",
    "/auth/sessions/{sid}",
    "/admin/users/{user_id}/role",
    "/admin/users/{user_id}/sessions",
    "/admin/users/{user_id}/block",
    "/admin/users/{user_id}",
    "/auth/account/delete",
)
"""What may end the sign-in that it is tried with."""
WITHOUT_ENDING = [word for path in ENDING for word in ("--exclude-path", path)]


@pytest.fixture(scope="module")
def identity_environment(identity_environment: dict[str, str]) -> dict[str, str]:
    """With as many wrong passwords as are tried."""
    return {**identity_environment, **ANY_PASSWORDS}


@pytest.fixture(scope="module")
def document(identity: Served) -> Any:
    """The service's OpenAPI document."""
    return identity.client.get("/openapi.json").json()


@pytest.mark.campaign
def test_it_conforms_for_an_administrator(identity: Served) -> None:
    """No 5xx, no undeclared status, no violation of a schema, as an administrator."""
    conform(identity.url, *_bearer(identity), *WITHOUT_ENDING, examples=10)


@pytest.mark.campaign
def test_it_conforms_for_a_user(identity: Served) -> None:
    """The same for a user who registers and signs in first, as schemathesis does by itself."""
    conform(identity.url, *WITHOUT_ENDING, examples=5)


@pytest.mark.campaign
@pytest.mark.parametrize("path", ENDING)
def test_ending_a_sign_in_conforms(identity: Served, path: str) -> None:
    """The same for what ends the sign-in that it is tried with."""
    conform(identity.url, *_bearer(identity), "--include-path", path, examples=8)


def _bearer(identity: Served) -> tuple[str, str]:
    return "--header", f"Authorization: Bearer {administrator(identity).tokens['access_token']}"


def test_every_error_is_a_problem_document(document: Any) -> None:
    """Each status from 400 on, of each operation, is declared as application/problem+json."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert list(answer["content"]) == ["application/problem+json"], (path, method, status)
                    assert ("Retry-After" in answer.get("headers", {})) == (status in ("429", "503"))


def test_secured_operations_say_so(document: Any) -> None:
    """Whatever takes a token declares it, with 401 and, but for metrics, 503; only these are open to all."""
    open_to_all = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if "security" in operation:
                expected = {"401"} if path == "/metrics" else {"401", "503"}
                assert expected <= set(operation["responses"])
            else:
                open_to_all.add((method, path))
    assert open_to_all == {
        ("post", "/auth/register"),
        ("post", "/auth/login"),
        ("post", "/auth/refresh"),
        ("post", "/auth/revoke"),
        ("post", "/auth/password/forgotten"),
        ("post", "/auth/password/reset"),
        ("post", "/auth/email/verification"),
        ("post", "/auth/email/confirm"),
        ("get", "/.well-known/jwks.json"),
        ("get", "/.well-known/ended-sign-ins"),
        ("get", "/healthz"),
        ("get", "/readyz"),
    }
