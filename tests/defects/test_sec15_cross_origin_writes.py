"""SEC15: a page of a sibling origin planted a document with the user's cookie."""

from __future__ import annotations

import pytest

from tests.defects.offline_services import NAMES, client_of

COOKIE = {"cookie": "__Host-session=x"}
SIBLINGS = (
    {"origin": "http://localhost:9000"},
    {"origin": "http://localhost:9000", "sec-fetch-site": "same-site"},
    {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
    {"origin": "null", "sec-fetch-site": "cross-site"},
    {"origin": "http://["},
    {"origin": "http://[::1]]:8000"},
)
OWN: tuple[dict[str, str], ...] = ({}, {"origin": "http://localhost:8000"}, {"sec-fetch-site": "same-origin"})


@pytest.mark.parametrize("name", NAMES)
async def test_sec15_a_sibling_origin_changes_nothing(name: str) -> None:
    """Every service refuses another origin's POST with a cookie before any route runs, and serves its own."""
    async with client_of(name) as client:
        for headers in SIBLINGS:
            answer = await client.post("/nowhere", headers={**COOKIE, **headers}, files={"file": b"planted"})
            assert (answer.status_code, answer.json()["title"]) == (403, "Forbidden")
        for headers in OWN:
            answer = await client.post("/nowhere", headers={**COOKIE, **headers}, files={"file": b"own"})
            assert answer.status_code == 404


async def test_sec15_bearer_tokens_and_trusted_origins_are_served() -> None:
    """A page that sends a token itself passed a preflight; an origin can be trusted by a setting."""
    foreign = {"origin": "https://admin.example", "sec-fetch-site": "cross-site"}
    async with client_of("slides") as client:
        token = {"authorization": "Bearer x"}
        assert (await client.post("/nowhere", headers={**foreign, **token})).status_code == 404
        assert (await client.post("/nowhere", headers={**foreign, **COOKIE})).status_code == 403
    async with client_of("slides", allowed_origins=("https://admin.example",)) as client:
        assert (await client.post("/nowhere", headers={**foreign, **COOKIE})).status_code == 404
