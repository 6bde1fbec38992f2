"""Administration of identity, documents with quotas, and tokens for programs, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest

from ephemera.embedded import Postgres
from tests.services.identity_users import (
    PASSWORD,
    QUICK,
    RESOURCE_SERVER,
    UNLIMITED,
    administrator,
    newcomer,
    register,
    sign_in,
)
from tests.services.services import Served, serving

TEXT = {"file": ("a.txt", b"0123456789", "text/plain")}


def test_users_are_listed_and_searched(identity: Served) -> None:
    """By address in pages, by part of an address or a name, by role and by block; wildcards are text."""
    root = administrator(identity)
    word = uuid4().hex[:12]
    emails = sorted(
        register(identity, email=f"{number}.{word}@example.com", first_name=f"Ann{number}", last_name=word)
        for number in range(5)
    )

    def listed(**query: str | int) -> list[str]:
        answer = root.ask("GET", "/admin/users", params=query)
        assert answer.status_code == 200, answer.text
        return [each["email"] for each in answer.json()["users"]]

    assert listed(q=word) == emails
    assert listed(q=word.upper()) == emails
    assert listed(q=f"ann3 {word}") == [emails[3]]
    assert listed(q=word, role="admin") == []
    assert listed(q=f"%{word}") == listed(q=f"_.{word}") == []
    first = root.ask("GET", "/admin/users", params={"q": word, "limit": 2}).json()
    assert [each["email"] for each in first["users"]] == emails[:2]
    assert listed(q=word, limit=2, after=first["next"]) == emails[2:4]
    assert root.ask("GET", "/admin/users", params={"q": word, "limit": 50}).json()["next"] is None

    user_id = root.ask("GET", "/admin/users", params={"q": emails[1]}).json()["users"][0]["user_id"]
    root.ask("PUT", f"/admin/users/{user_id}/block")
    assert listed(q=word, blocked="true") == [emails[1]]
    assert listed(q=word, blocked="false") == [each for each in emails if each != emails[1]]
    assert root.ask("GET", f"/admin/users/{user_id}").json()["blocked_at"] is not None


def test_a_blocked_user_is_out_everywhere_until_unblocked(identity: Served, second: Served) -> None:
    """Every token is void on every process, and neither the password nor a reset lets them in."""
    root, ann = administrator(identity), newcomer(identity)
    path = f"/admin/users/{ann.id}/block"
    for _ in range(2):
        assert root.ask("PUT", path).status_code == 200
    assert ann.profile(identity).status_code == ann.profile(second).status_code == 401
    assert ann.refresh(second).status_code == 401
    form = {"email": ann.email, "password": PASSWORD}
    refused = second.client.post("/auth/login", json=form)
    assert refused.status_code == 403
    assert "blocked" in refused.json()["detail"]
    wrong = second.client.post("/auth/login", json=form | {"password": "not the one"})
    assert wrong.status_code == 401, "only who knows the password learns that it is blocked"
    assert root.ask("DELETE", path).status_code == 204
    sign_in(second, ann.email)
    log = root.ask("GET", f"/admin/users/{ann.id}/security-log").json()["events"]
    what = [(each["what"], each["by_admin"]) for each in log]
    assert ("blocked", True) in what
    assert ("unblocked", True) in what
    assert all(each["ip_address"] == "" for each in log if each["by_admin"])


def test_an_administrator_deletes_a_user(identity: Served, second: Served) -> None:
    """The account is gone with its tokens; no one deletes or blocks their own by accident."""
    root, ann = administrator(identity), newcomer(identity)
    assert root.ask("DELETE", f"/admin/users/{ann.id}").status_code == 204
    assert ann.profile(second).status_code == 401
    assert root.ask("DELETE", f"/admin/users/{ann.id}").status_code == 404
    assert root.ask("DELETE", f"/admin/users/{root.id}").status_code == 409
    assert root.ask("PUT", f"/admin/users/{root.id}/block").status_code == 409
    form = {"password": "the administrator's own"}
    assert root.ask("POST", "/auth/account/delete", json=form).status_code == 409
    assert root.profile().status_code == 200


def test_administration_is_for_administrators(identity: Served) -> None:
    """Others get 403, and without a token 401, on each route; an unknown user is 404."""
    ann, root = newcomer(identity), administrator(identity)
    user = f"/admin/users/{ann.id}"
    for method, path in (
        ("GET", "/admin/users"),
        ("GET", user),
        ("DELETE", user),
        ("PUT", f"{user}/block"),
        ("DELETE", f"{user}/block"),
        ("GET", f"{user}/security-log"),
    ):
        assert ann.ask(method, path).status_code == 403
        assert identity.client.request(method, path).status_code == 401
        if path != "/admin/users":
            assert root.ask(method, path.replace(ann.id, str(uuid4()))).status_code == 404
    assert ann.profile().status_code == 200


def test_documents_are_listed_read_and_deleted_by_their_owner(identity: Served) -> None:
    """With their quota; others, administrators too, get 404."""
    ann, others = newcomer(identity), (newcomer(identity), administrator(identity))
    stored = ann.ask("POST", "/api/documents/upload", files=TEXT).json()
    listed = ann.ask("GET", "/api/documents").json()
    assert listed["documents"] == [stored]
    assert listed["quota"] == {
        "documents": 1,
        "max_documents": 100,
        "bytes": 10,
        "max_bytes": 50_000_000,
    }
    path = f"/api/documents/{stored['document_id']}"
    for other in others:
        assert [other.ask(method, path).status_code for method in ("GET", "DELETE")] == [404, 404]
        assert other.ask("GET", "/api/documents").json()["documents"] == []
    answer = ann.ask("GET", path)
    assert answer.content == b"0123456789"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a.txt"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ann.ask("DELETE", path).status_code == 204
    assert ann.ask("GET", path).status_code == 404
    assert ann.ask("GET", "/api/documents").json()["quota"]["bytes"] == 0


@pytest.fixture(scope="module")
def strict(
    places: dict[str, str], postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service with small quotas."""
    own = {
        "EPHEMERA_DATABASE_URL": postgres.database("identity_strict"),
        "EPHEMERA_IDENTITY_DOCUMENTS_PER_USER": "3",
        "EPHEMERA_IDENTITY_DOCUMENT_BYTES_PER_USER": "25",
    }
    with serving(
        "identity", tmp_path_factory.mktemp("logs"), **{**places, **QUICK, **UNLIMITED, **own}
    ) as it:
        yield it


def test_quotas_hold_when_uploads_race(strict: Served) -> None:
    """Of many uploads at once as many succeed as fit, by number and by bytes; a deletion makes room."""
    ann = newcomer(strict)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ann.ask("POST", "/api/documents/upload", files=TEXT), range(8)))
    assert sorted(each.status_code for each in answers) == [201] * 2 + [409] * 6
    refused = next(each.json() for each in answers if each.status_code == 409)
    assert "5 more bytes" in refused["detail"]
    document = next(each.json()["document_id"] for each in answers if each.status_code == 201)
    assert ann.ask("DELETE", f"/api/documents/{document}").status_code == 204
    small = {"file": ("b.txt", b"1", "text/plain")}
    statuses = [ann.ask("POST", "/api/documents/upload", files=small).status_code for _ in range(3)]
    assert statuses == [201, 201, 409]


def introspect(
    served: Served, token: str, authorization: str = f"Bearer {RESOURCE_SERVER}"
) -> dict[str, object]:
    """The answer to a resource server."""
    headers = {"authorization": authorization} if authorization else {}
    answer = served.client.post("/auth/introspect", data={"token": token}, headers=headers)
    return {"status": answer.status_code, **answer.json()}


def revoke(served: Served, token: str) -> int:
    """The status of a revocation by the holder of the token."""
    return served.client.post("/auth/revoke", data={"token": token}).status_code


def test_tokens_are_introspected(identity: Served, second: Served) -> None:
    """Active tokens of both kinds are described; a used, ended or made up one is only not active."""
    ann = newcomer(identity)
    access, refresh = ann.tokens["access_token"], ann.tokens["refresh_token"]
    found = introspect(second, access)
    assert (found["active"], found["sub"], found["sid"], found["role"]) == (True, ann.id, ann.sid, "user")
    assert found["token_type"] == "Bearer"
    assert "token_type" not in introspect(second, refresh), "no resource accepts a refresh token"
    ann.refresh()
    inactive = {"status": 200, "active": False}
    assert introspect(second, refresh) == introspect(second, "made up") == inactive
    ann.ask("POST", "/auth/logout")
    assert introspect(second, access) == inactive
    assert introspect(second, ann.tokens["refresh_token"]) == inactive


def test_introspection_is_for_resource_servers(identity: Served, strict: Served) -> None:
    """Without the setting's token it is refused, with a user's own token, and where there is no setting."""
    ann = newcomer(identity)
    token = ann.tokens["access_token"]
    for authorization in (
        "",
        "Bearer wrong-token-of-16-characters",
        f"Bearer {token}",
        f"Basic {RESOURCE_SERVER}",
    ):
        assert introspect(identity, token, authorization)["status"] == 401
    assert introspect(strict, token)["status"] == 401


def test_a_repeated_revocation_completes_the_first(
    identity: Served, second: Served, places: dict[str, str]
) -> None:
    """The first may have failed between SQL, where the sign-in has ended, and Redis, whose marks it lacks."""
    ann = newcomer(identity)
    with psycopg.connect(places["EPHEMERA_DATABASE_URL"], autocommit=True) as sql:
        sql.execute("UPDATE identity.sign_ins SET ended_at = now() WHERE id = %s", (ann.sid,))
    assert ann.profile(second).status_code == 200, "Redis decides while it can"
    assert revoke(identity, ann.tokens["refresh_token"]) == 200
    assert ann.profile(second).status_code == 401


def test_a_holder_revokes_tokens(identity: Served, second: Served) -> None:
    """An access token alone; a refresh token with its sign-in; what is not valid is 200, too."""
    ann = newcomer(identity)
    assert revoke(identity, ann.tokens["access_token"]) == 200
    assert ann.profile(second).status_code == 401
    assert ann.refresh(second).status_code == 200, "the sign-in is still active"
    other = ann.signed_in_again()
    assert revoke(second, ann.tokens["refresh_token"]) == 200
    assert ann.profile(identity).status_code == 401
    assert "has ended" in ann.refresh(identity).json()["detail"]
    assert other.profile().status_code == 200
    for invalid in ("made up", ann.tokens["refresh_token"], ann.tokens["access_token"]):
        assert revoke(identity, invalid) == 200
    assert identity.client.post("/auth/revoke", data={}).status_code == 422
