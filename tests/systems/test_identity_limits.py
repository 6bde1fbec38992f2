"""The limits of identity: per address and per user, told in headers, and refused as problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.systems.identity_users import PASSWORD, QUICK, administrator, newcomer, register
from tests.systems.services import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ephemera.embedded import Valkey
    from tests.systems.services import Served

FEW = {
    "EPHEMERA_TRUSTED_PROXIES": "127.0.0.1",
    "EPHEMERA_IDENTITY_PROFILE_READS_PER_HOUR": "7",
    "EPHEMERA_IDENTITY_PROFILE_UPDATES_PER_HOUR": "2",
    "EPHEMERA_IDENTITY_UPLOADS_PER_HOUR": "1",
}


@pytest.fixture(scope="module", params=["fixed", "sliding"])
def limited(
    request: pytest.FixtureRequest, places: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service with low limits and the usual one for sign-ins, behind a proxy that tells the client."""
    windows = {"EPHEMERA_IDENTITY_WINDOWS": request.param}
    folder = tmp_path_factory.mktemp("logs")
    with serving("identity", folder, **places, **QUICK, **FEW, **windows) as running:
        running.client.headers["x-forwarded-for"] = f"192.0.2.{len(request.param)}"
        yield running


def test_five_sign_ins_an_hour_from_one_address(limited: Served) -> None:
    """The sixth attempt is 429 before any password is looked at; another address is not concerned."""
    email = register(limited)
    here = {"x-forwarded-for": "198.51.100.7"}
    wrong = {"email": email, "password": "not the one"}
    right = {"email": email, "password": PASSWORD}
    for _ in range(5):
        assert limited.client.post("/auth/login", json=wrong, headers=here).status_code == 401
    refused = limited.client.post("/auth/login", json=right, headers=here)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 3600
    assert refused.json()["violated-policies"] == ["login"]
    assert limited.client.post("/auth/login", json=right).status_code == 200
    elsewhere = {"x-forwarded-for": "198.51.100.7, 198.51.100.8"}
    assert limited.client.post("/auth/login", json=right, headers=elsewhere).status_code == 200


def test_each_user_has_limits_of_their_own(limited: Served, valkey: Valkey) -> None:
    """Reads, updates and uploads are counted apart, for each user, and every answer says what is left."""
    valkey.ask("FLUSHALL")
    ann, bob = newcomer(limited), newcomer(limited)
    first = ann.profile()
    assert first.headers["ratelimit-policy"] == '"profile-read";q=7;w=3600'
    assert first.headers["ratelimit"].startswith('"profile-read";r=6;')
    assert [ann.profile().status_code for _ in range(7)] == [200] * 6 + [429]
    change = {"first_name": "A", "last_name": "B"}
    path = f"/api/profiles/{ann.id}"
    assert [ann.ask("PUT", path, json=change).status_code for _ in range(3)] == [200, 200, 429]
    files = {"file": ("a.txt", b"text", "text/plain")}
    uploads = [ann.ask("POST", "/api/documents/upload", files=files).status_code for _ in range(2)]
    assert uploads == [201, 429]
    assert bob.profile().status_code == 200


def test_a_revoked_token_does_not_use_up_its_users_limit(limited: Served, valkey: Valkey) -> None:
    """Whoever has a stolen, revoked token cannot lock its owner out."""
    valkey.ask("FLUSHALL")
    ann = newcomer(limited)
    stolen = ann.signed_in_again()
    assert ann.ask("DELETE", f"/auth/sessions/{stolen.sid}").status_code == 204
    assert {stolen.profile().status_code for _ in range(10)} == {401}
    assert ann.profile().status_code == 200
    assert administrator(limited).profile().status_code == 200
