"""The scripture service answers as its OpenAPI document says, whatever is sent to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ephemera.embedded import Valkey
from tests.services.conformance import conform
from tests.services.scripture_readers import UNLIMITED, administrator, reading
from tests.services.services import SCRAPER, Served

WITHOUT_INGEST = ("--exclude-path-regex", "^/ingest/")


@pytest.fixture(scope="module")
def scripture(
    places: dict[str, str], valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service without limits that tests would meet."""
    with reading(places, valkey, tmp_path_factory.mktemp("logs"), **UNLIMITED, **SCRAPER) as running:
        yield running


@pytest.fixture(scope="module")
def document(scripture: Served) -> Any:
    """The service's OpenAPI document."""
    return scripture.client.get("/openapi.json").json()


@pytest.mark.campaign
def test_it_conforms_for_an_administrator(scripture: Served) -> None:
    """No 5xx, no undeclared status, no violation of a schema, as an administrator."""
    conform(scripture.url, *_bearer(scripture), *WITHOUT_INGEST, examples=10)


@pytest.mark.campaign
def test_it_conforms_without_a_token(scripture: Served) -> None:
    """The same without a token."""
    conform(scripture.url, examples=5)


@pytest.mark.campaign
@pytest.mark.parametrize("schema", ["passages", "topics", "lexicon"])
def test_an_ingest_conforms(scripture: Served, schema: str) -> None:
    """The same for documents of each form: many that are wrong, and some that change something."""
    only = (*_bearer(scripture), "--include-path", f"/ingest/{schema}")
    conform(scripture.url, *only, "--mode", "negative", examples=5)
    conform(scripture.url, *only, "--mode", "positive", "--phases", "examples,fuzzing", examples=8)


def _bearer(scripture: Served) -> tuple[str, str]:
    return "--header", f"Authorization: Bearer {administrator(scripture).token}"


def test_every_error_is_a_problem_document(document: Any) -> None:
    """Each status from 400 on, of each operation, is declared as application/problem+json."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert list(answer["content"]) == ["application/problem+json"], (path, method, status)
                    assert ("Retry-After" in answer.get("headers", {})) == (status in ("429", "503"))


def test_operations_say_whom_they_are_for(document: Any) -> None:
    """Reading and asking take a token or none, the rest needs one; health, links and a public key do not."""
    kinds: dict[str, set[str]] = {"optional": set(), "bearer": set(), "open": set()}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            security = operation.get("security")
            kind = "open" if security is None else "optional" if {} in security else "bearer"
            assert security is None or "401" in operation["responses"]
            kinds[kind].add(path)
    assert kinds == {
        "optional": {
            "/passages/{passage_id}",
            "/chapters/{book}.{chapter}",
            "/topics/{topic_id}",
            "/lexicon/{word_id}",
            "/search",
            "/translations",
            "/books",
            "/topics",
            "/ai/ask",
            "/ai/ask/stream",
        },
        "bearer": {
            "/me/preferences",
            "/me/notifications",
            "/me/push-subscriptions",
            "/me/push-subscriptions/{subscription_id}",
            "/users",
            "/users/{user_id}/plan",
            "/plans/{plan}/features/{feature}",
            "/ingest/passages",
            "/ingest/topics",
            "/ingest/lexicon",
            "/ingest/chapters",
            "/ingest/passages/{passage_id}",
            "/ingest/translations/{translation}",
            "/ingest/topics/{topic_id}",
            "/ingest/lexicon/{word_id}",
            "/metrics",
        },
        "open": {"/healthz", "/readyz", "/unsubscribe", "/push/public-key"},
    }
