"""What is revoked is void at the next request, on every process, and nothing brings it back."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jwt

from ephemera.embedded import Valkey
from tests.services.identity_users import QUICK, UNLIMITED, Person, administrator, newcomer
from tests.services.services import Served, serving


def test_a_role_change_ends_every_session_on_every_process(identity: Served, second: Served) -> None:
    """All tokens that say the old role get 401 at their next request, wherever it goes; new ones work."""
    root, ann = administrator(identity), newcomer(identity)
    sessions = [ann, ann.signed_in_again(), ann.signed_in_again()]
    assert all(each.profile(at).status_code == 200 for each in sessions for at in (identity, second))
    assert ann.ask("GET", "/admin/redis/stats").status_code == 403

    changed = root.ask("PUT", f"/admin/users/{ann.id}/role", json={"role": "admin"})
    assert changed.json() == {"ended": 3}
    assert [each.profile(at).status_code for each in sessions for at in (identity, second)] == [401] * 6
    assert [each.refresh(second).status_code for each in sessions] == [401] * 3

    promoted = ann.signed_in_again()
    assert promoted.ask("GET", "/admin/redis/stats", second).status_code == 200


def test_an_administrator_ends_all_sessions_of_a_user(identity: Served, second: Served) -> None:
    """401 everywhere, an empty list, and other users are not touched."""
    root, ann, bob = administrator(identity), newcomer(identity), newcomer(identity)
    path = f"/admin/users/{ann.id}/sessions"
    assert len(root.ask("GET", path).json()["sessions"]) == 1
    assert root.ask("DELETE", path, second).json() == {"ended": 1}
    assert ann.profile(identity).status_code == ann.profile(second).status_code == 401
    assert root.ask("GET", path).json() == {"sessions": []}
    assert bob.profile(second).status_code == 200


def test_a_reused_refresh_token_ends_its_whole_family(identity: Served, second: Served) -> None:
    """Using a refresh token twice ends its sign-in for both clients; other sign-ins stay active."""
    ann = newcomer(identity)
    elsewhere = ann.signed_in_again()
    stolen = ann.tokens["refresh_token"]
    assert ann.refresh().status_code == 200
    thief = second.client.post("/auth/refresh", json={"refresh_token": stolen})
    assert thief.status_code == 401
    assert "used before" in thief.json()["detail"]
    assert ann.profile(identity).status_code == ann.profile(second).status_code == 401
    assert ann.refresh().status_code == 401
    assert elsewhere.profile().status_code == 200


def test_of_many_who_refresh_at_once_one_wins_and_the_family_ends(identity: Served, second: Served) -> None:
    """Twenty uses of one token at the same time give tokens to one at most, and those are void after it."""
    ann = newcomer(identity)
    body = {"refresh_token": ann.tokens["refresh_token"]}
    with ThreadPoolExecutor(20) as pool:
        places = [identity, second] * 10
        answers = list(pool.map(lambda at: at.client.post("/auth/refresh", json=body), places))
    won = [answer.json() for answer in answers if answer.status_code == 200]
    assert len(won) == 1
    assert {answer.status_code for answer in answers} == {200, 401}
    ann.tokens = won[0]
    assert ann.profile().status_code == 401
    assert ann.refresh().status_code == 401


def test_losing_redis_brings_no_refresh_token_back(identity: Served, valkey: Valkey) -> None:
    """A used-up refresh token, and one of an ended sign-in, stay void when everything in Redis is gone."""
    ann, bob = newcomer(identity), newcomer(identity)
    used = ann.tokens["refresh_token"]
    assert ann.refresh().status_code == 200
    assert bob.ask("POST", "/auth/logout").status_code == 204
    valkey.ask("FLUSHALL")
    assert identity.client.post("/auth/refresh", json={"refresh_token": used}).status_code == 401
    assert bob.refresh().status_code == 401


def test_signing_keys_rotate_on_every_process(
    places: dict[str, str], tmp_path: Path, identity: Served, second: Served
) -> None:
    """The key set shows old and new, everywhere; old tokens stay valid; a second rotation has to wait."""
    root, ann = administrator(identity), newcomer(identity)
    before = _kids(identity)
    fresh = root.ask("POST", "/admin/keys/rotate")
    assert fresh.status_code == 201
    assert _kids(identity) == [*before, fresh.json()["kid"]]
    assert root.ask("POST", "/admin/keys/rotate", second).status_code == 409
    assert _eventually(second, [*before, fresh.json()["kid"]])
    assert ann.profile(second).status_code == 200
    with serving("identity", tmp_path, **places) as third:
        assert _kids(third) == _kids(identity), "keys outlive the process that made them"
        assert ann.profile(third).status_code == 200


def test_a_new_key_signs_when_its_time_has_come(places: dict[str, str], tmp_path: Path) -> None:
    """With nothing to wait for, the next token has the new key, and those of the old one are still good."""
    variables = places | {"EPHEMERA_IDENTITY_KEY_AHEAD": "1ms", "EPHEMERA_DATABASE_URL": ""}
    with serving("identity", tmp_path, **variables, **QUICK, **UNLIMITED) as alone:
        root, ann = administrator(alone), newcomer(alone)
        kid = root.ask("POST", "/admin/keys/rotate").json()["kid"]
        later = _renewed(ann)
        assert later.profile().status_code == 200
        assert _key_of(later) == kid
        assert root.ask("GET", "/admin/redis/stats").status_code == 200, "signed with the old key"


def _renewed(person: Person) -> Person:
    assert person.refresh().status_code == 200
    return person


def _key_of(person: Person) -> str:
    kid: str = jwt.get_unverified_header(person.tokens["access_token"])["kid"]
    return kid


def _kids(served: Served) -> list[str]:
    return [key["kid"] for key in served.client.get("/.well-known/jwks.json").json()["keys"]]


def _eventually(served: Served, kids: list[str]) -> bool:
    """Whether a process learns of these keys within some seconds."""
    deadline = time.monotonic() + 30
    while _kids(served) != kids and time.monotonic() < deadline:
        time.sleep(0.1)
    return _kids(served) == kids
