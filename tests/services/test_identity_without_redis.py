"""Redis down, hung, and back: what still works, works; what cannot be decided is 503; nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import jwt
import psycopg
import pytest

from ephemera.embedded import Valkey
from tests.services.identity_users import PASSWORD, administrator, newcomer
from tests.services.services import Served


@pytest.fixture(params=["down", "hung"])
def outage(request: pytest.FixtureRequest, valkey: Valkey) -> Iterator[Outage]:
    """A Redis that a test can stop; it is back after the test."""
    outage = Outage(valkey, request.param)
    yield outage
    outage.end()


class Outage:
    """Makes a server unavailable, by SIGKILL or SIGSTOP, and restores it."""

    def __init__(self, server: Valkey, kind: str) -> None:
        self._server = server
        self._hung = kind == "hung"
        self._active = False

    def begin(self) -> None:
        """From now on Redis does not answer."""
        self._active = True
        if self._hung:
            self._server.pause()
        else:
            self._server.kill()

    def end(self) -> None:
        """Redis is back: as it was, or empty."""
        if self._active and self._hung:
            self._server.resume()
        elif self._active:
            self._server.restart()
        self._active = False


def test_what_needs_no_redis_works_and_the_rest_is_503(identity: Served, outage: Outage) -> None:
    """Access tokens, profiles and lists work; refreshing, signing in and administration are 503."""
    root, ann = administrator(identity), newcomer(identity)
    gone = newcomer(identity)
    assert ann.profile().status_code == 200
    assert gone.ask("POST", "/auth/logout").status_code == 204
    outage.begin()

    assert ann.profile().status_code == 200
    changes = {"first_name": "Changed", "last_name": "Meanwhile"}
    assert ann.ask("PUT", f"/api/profiles/{ann.id}", json=changes).status_code == 200
    listed = ann.ask("GET", "/auth/sessions").json()["sessions"]
    assert [(each["sid"], each["in_use"]) for each in listed] == [(ann.sid, None)]
    assert gone.profile().status_code == 401, "this process remembers what it revoked"
    files = {"file": ("a.txt", b"text", "text/plain")}
    assert ann.ask("POST", "/api/documents/upload", files=files).status_code == 201

    _is_unavailable(ann.refresh())
    credentials = {"email": ann.email, "password": PASSWORD}
    _is_unavailable(identity.client.post("/auth/login", json=credentials))
    _is_unavailable(root.ask("GET", "/admin/redis/stats"))
    _is_unavailable(root.ask("PUT", f"/admin/users/{ann.id}/role", json={"role": "admin"}))
    _is_unavailable(root.ask("DELETE", f"/admin/users/{ann.id}/sessions"))
    assert identity.client.get("/healthz").status_code == 200
    _wait_until_redis_is("down", identity)
    readiness = identity.client.get("/readyz").json()
    assert (readiness["status"], readiness["redis"], readiness["sql"]) == ("degraded", "down", "up")

    _end(outage, identity)
    assert _eventual_name(ann) == "Changed"
    assert ann.refresh().status_code == 200, "the refresh token was not used up by the attempt that failed"
    assert root.ask("PUT", f"/admin/users/{ann.id}/role", json={"role": "admin"}).status_code == 200
    assert ann.profile().status_code == 401


def test_a_revocation_holds_on_a_process_that_never_received_it(
    identity: Served, places: dict[str, str], outage: Outage
) -> None:
    """Without Redis, SQL decides about a revoked sign-in or token and about one whose user has a new role."""
    ann, ended, promoted, revoked = (newcomer(identity) for _ in range(4))
    claims = jwt.decode(revoked.tokens["access_token"], options={"verify_signature": False})
    with psycopg.connect(
        places["EPHEMERA_DATABASE_URL"], autocommit=True
    ) as sql:  # without invalidation in Redis
        sql.execute("UPDATE identity.sign_ins SET ended_at = now() WHERE id = %s", (ended.sid,))
        sql.execute("UPDATE identity.users SET role = 'admin' WHERE id = %s", (promoted.id,))
        sql.execute("INSERT INTO identity.revoked_tokens (id, revoked_by) VALUES (%s, 1)", (claims["jti"],))
    outage.begin()
    assert ann.profile().status_code == 200
    assert ended.profile().status_code == 401
    assert promoted.profile().status_code == 401
    assert revoked.profile().status_code == 401
    _end(outage, identity)


def test_a_sign_out_during_an_outage_can_be_repeated(identity: Served, outage: Outage) -> None:
    """It is 503, since other processes cannot know; here and in SQL it holds at once."""
    ann = newcomer(identity)
    outage.begin()
    _is_unavailable(ann.ask("POST", "/auth/logout"))
    assert ann.profile().status_code == 401
    _end(outage, identity)
    assert ann.refresh().status_code == 401


def _is_unavailable(answer: httpx.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["content-type"] == "application/problem+json"


def _end(outage: Outage, served: Served) -> None:
    """End an outage that the service has noticed: its readiness may be a second old, so from before."""
    _wait_until_redis_is("down", served)
    outage.end()
    _wait_until_redis_is("up", served)


def _wait_until_redis_is(state: str, served: Served) -> None:
    deadline = time.monotonic() + 30
    while served.client.get("/readyz").json().get("redis") != state:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _eventual_name(person: object) -> str:
    """The name in a profile once the change is invalidated in the cache."""
    deadline = time.monotonic() + 10
    while True:
        name: str = person.profile().json()["first_name"]  # type: ignore[attr-defined]
        if name == "Changed" or time.monotonic() > deadline:
            return name
        time.sleep(0.05)
