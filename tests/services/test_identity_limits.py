"""The rate limits of identity: per address and per user, in headers, and refused with problems."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from httpx import Response

from ephemera.embedded import Valkey
from tests.services.identity_users import PASSWORD, QUICK, Person, administrator, newcomer, register
from tests.services.services import Served, serving

T = TypeVar("T")

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


def _in_one_hour(valkey: Valkey, attempt: Callable[[], T]) -> T:
    """What an attempt gives on an empty server, within one hour: fixed windows are hours of its clock."""
    while True:
        valkey.ask("FLUSHALL")
        began, given = time.time() // 3600, attempt()
        if time.time() // 3600 == began:  # otherwise one ended in the meantime, and its counts with it
            return given


def test_five_sign_ins_an_hour_from_one_address(limited: Served, valkey: Valkey) -> None:
    """The sixth attempt is 429 before any password is looked at; another address is not concerned."""
    email, addresses = register(limited), (f"198.51.100.{number}" for number in count(10))
    wrong = {"email": email, "password": "not the one"}
    right = {"email": email, "password": PASSWORD}

    def sign_in_from_a_new_address() -> tuple[str, list[Response]]:
        here = {"x-forwarded-for": next(addresses)}
        given = [
            limited.client.post("/auth/login", json=each, headers=here) for each in (*[wrong] * 5, right)
        ]
        return here["x-forwarded-for"], given

    address, (*failed, refused) = _in_one_hour(valkey, sign_in_from_a_new_address)
    assert [each.status_code for each in failed] == [401] * 5
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 3600
    assert refused.json()["violated-policies"] == ["login"]
    assert limited.client.post("/auth/login", json=right).status_code == 200
    elsewhere = {"x-forwarded-for": f"{address}, 198.51.100.8"}
    assert limited.client.post("/auth/login", json=right, headers=elsewhere).status_code == 200


def test_each_user_has_limits_of_their_own(limited: Served, valkey: Valkey) -> None:
    """Reads, updates and uploads are counted separately for each user, and every answer says what is left."""
    change = {"first_name": "A", "last_name": "B"}
    files = {"file": ("a.txt", b"text", "text/plain")}

    def use_up() -> dict[str, list[Response]]:
        ann, bob = newcomer(limited), newcomer(limited)
        return {
            "reads": [ann.profile() for _ in range(8)],
            "updates": [ann.ask("PUT", f"/api/profiles/{ann.id}", json=change) for _ in range(3)],
            "uploads": [ann.ask("POST", "/api/documents/upload", files=files) for _ in range(2)],
            "of another": [bob.profile()],
        }

    answers = _in_one_hour(valkey, use_up)
    first = answers["reads"][0]
    assert first.headers["ratelimit-policy"] == '"profile-read";q=7;w=3600'
    assert first.headers["ratelimit"].startswith('"profile-read";r=6;')
    assert {what: [each.status_code for each in given] for what, given in answers.items()} == {
        "reads": [200] * 7 + [429],
        "updates": [200, 200, 429],
        "uploads": [201, 429],
        "of another": [200],
    }


def test_the_limits_of_the_description_are_the_defaults(places: dict[str, str], tmp_path: Path) -> None:
    """100 reads, 10 updates, 20 uploads and 5 sign-ins per hour, where no setting says otherwise."""
    with serving("identity", tmp_path, **places, **QUICK) as served:
        email = register(served)
        signed_in = served.client.post("/auth/login", json={"email": email, "password": PASSWORD})
        ann = Person(served, signed_in.json(), email)
        answers = [
            signed_in,
            ann.profile(),
            ann.ask("PUT", f"/api/profiles/{ann.id}", json={"first_name": "A", "last_name": "B"}),
            ann.ask("POST", "/api/documents/upload", files={"file": ("a.txt", b"text", "text/plain")}),
        ]
    assert [each.headers["ratelimit-policy"] for each in answers] == [
        '"login";q=5;w=3600',
        '"profile-read";q=100;w=3600',
        '"profile-update";q=10;w=3600',
        '"document-upload";q=20;w=3600',
    ]


def test_a_revoked_token_does_not_use_up_its_users_limit(limited: Served, valkey: Valkey) -> None:
    """A stolen, revoked token cannot be used to lock its owner out."""
    valkey.ask("FLUSHALL")
    ann = newcomer(limited)
    stolen = ann.signed_in_again()
    assert ann.ask("DELETE", f"/auth/sessions/{stolen.sid}").status_code == 204
    assert {stolen.profile().status_code for _ in range(10)} == {401}
    assert ann.profile().status_code == 200
    assert administrator(limited).profile().status_code == 200
