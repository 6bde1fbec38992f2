"""The league answers as its OpenAPI document says, whatever is sent to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ephemera_services.league import DEMO_ADMINISTRATOR
from ephemera_services.runtime import DEMO_PASSWORD
from tests.services.conformance import conform
from tests.services.league_users import TOKEN, league
from tests.services.services import SCRAPER, Served

ENDING = ("--exclude-path", "/api/session")
"""What would end the session that it is tried with."""


@pytest.fixture(scope="module")
def served(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A league."""
    secure = {"EPHEMERA_LEAGUE_SECURE_COOKIES": "true"}  # as the document has the cookie's name
    with league(tmp_path_factory.mktemp("logs"), places, **secure, **SCRAPER) as running:
        yield running


@pytest.mark.campaign
def test_it_conforms_for_an_administrator(served: Served, tmp_path: Path) -> None:
    """No 5xx, no undeclared status, no violation of a schema, as an administrator."""
    signed = served.client.post("/api/session", json={"name": DEMO_ADMINISTRATOR, "password": DEMO_PASSWORD})
    config = tmp_path / "schemathesis.toml"
    config.write_text(f'[auth.openapi.Session]\napi_key = "{signed.cookies["__Host-session"]}"\n')
    conform(served.url, "--header", f"x-prewarm-token: {TOKEN}", *ENDING, examples=8, config=config)


@pytest.mark.campaign
def test_it_conforms_for_a_stranger(served: Served) -> None:
    """The same without a session."""
    conform(served.url, examples=5)


def test_every_error_is_a_problem_document(served: Served) -> None:
    """Each status from 400 on, of each operation, is declared as application/problem+json."""
    document: Any = served.client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert list(answer["content"]) == ["application/problem+json"], (path, method, status)
                    assert ("Retry-After" in answer.get("headers", {})) == (status in ("429", "503"))


def test_live_routes_declare_their_limit(served: Served) -> None:
    """What has a limit says 429, and what is for administrators says 401 and 403."""
    document: Any = served.client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method == "get" and path.startswith("/api/matches/"):
                assert "429" in operation["responses"], path
            if path.startswith("/api/admin/"):
                assert {"401", "403"} <= {*operation["responses"]}, path
