"""The identity service over HTTP, from registration to sign-out."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera_services.identity import DEMO_USERS, Settings, create_app, seed
from ephemera_services.runtime import DEMO_PASSWORD, Secret
from tests.services.identity_users import PASSWORD, administrator, newcomer, register, sign_in
from tests.services.services import Served

PDF = b"%PDF-1.7\n%...\n"


def test_the_whole_story(identity: Served) -> None:
    """Register, sign in, read and change the profile, upload, look at the sessions, refresh, sign out."""
    email = register(identity, phone="090-1234-5678", address="東京都渋谷区")
    taro = sign_in(identity, email)

    profile = taro.profile()
    assert profile.status_code == 200
    assert profile.json() | {"cached_at": ""} == {
        "user_id": taro.id,
        "email": email,
        "first_name": "太郎",
        "last_name": "山田",
        "phone": "090-1234-5678",
        "address": "東京都渋谷区",
        "cached_at": "",
    }
    assert taro.profile().json() == profile.json(), "the second read is the cached first"

    changes = {"first_name": "Jiro", "last_name": "Yamada", "phone": "", "address": "Osaka"}
    assert taro.ask("PUT", f"/api/profiles/{taro.id}", json=changes).status_code == 200
    assert taro.profile().json()["first_name"] == "Jiro"

    stored = taro.ask("POST", "/api/documents/upload", files={"file": ("cv.pdf", PDF, "application/pdf")})
    assert stored.status_code == 201
    assert stored.json()["size"] == len(PDF)

    phone = taro.signed_in_again()
    listed = taro.ask("GET", "/auth/sessions").json()["sessions"]
    assert {(each["sid"], each["current"], each["in_use"]) for each in listed} == {
        (taro.sid, True, True),
        (phone.sid, False, True),
    }

    before = taro.tokens
    assert taro.refresh().status_code == 200
    assert taro.tokens["sid"] == before["sid"], "a sign-in keeps its id when its tokens change"
    assert taro.tokens["refresh_token"] != before["refresh_token"]
    assert taro.profile().status_code == 200

    assert taro.ask("POST", "/auth/logout").status_code == 204
    assert taro.profile().status_code == 401
    assert taro.refresh().status_code == 401
    assert phone.profile().status_code == 200, "only this sign-in has ended"


def test_an_address_has_one_account(identity: Served) -> None:
    """A second registration changes nothing, whatever the case of its letters."""
    email = register(identity)
    register(identity, email=email.upper(), password="another password")
    sign_in(identity, email)
    wrong = {"email": email, "password": "another password"}
    assert identity.client.post("/auth/login", json=wrong).status_code == 401


def test_a_wrong_password_and_an_unknown_address_look_the_same(identity: Served) -> None:
    """A sign-in does not reveal which addresses have accounts."""
    email = register(identity)
    wrong = identity.client.post("/auth/login", json={"email": email, "password": "not the one"})
    unknown = identity.client.post("/auth/login", json={"email": "x@example.com", "password": PASSWORD})
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json() == unknown.json()


def test_profiles_are_for_their_owner_and_administrators(identity: Served) -> None:
    """Other users get 403, an administrator reads every profile, and an unknown user is 404."""
    ann, bob, root = newcomer(identity), newcomer(identity), administrator(identity)
    assert bob.ask("GET", f"/api/profiles/{ann.id}").status_code == 403
    changes = {"first_name": "Mallory", "last_name": "M"}
    assert bob.ask("PUT", f"/api/profiles/{ann.id}", json=changes).status_code == 403
    assert root.ask("GET", f"/api/profiles/{ann.id}").status_code == 200
    assert root.ask("GET", f"/api/profiles/{uuid4()}").status_code == 404


def test_a_session_can_be_ended_from_another(identity: Served) -> None:
    """The lost phone's tokens are refused at their next use, and users cannot end sessions of others."""
    laptop, stranger = newcomer(identity), newcomer(identity)
    phone = laptop.signed_in_again()
    assert stranger.ask("DELETE", f"/auth/sessions/{phone.sid}").status_code == 404
    assert phone.profile().status_code == 200
    assert laptop.ask("DELETE", f"/auth/sessions/{phone.sid}").status_code == 204
    assert phone.profile().status_code == 401
    assert phone.refresh().status_code == 401
    assert laptop.profile().status_code == 200
    assert [each["sid"] for each in laptop.ask("GET", "/auth/sessions").json()["sessions"]] == [laptop.sid]


@pytest.mark.parametrize(
    ("name", "content", "media_type", "status"),
    [
        ("a.pdf", PDF, "application/pdf", 201),
        ("a.png", b"\x89PNG\r\n\x1a\n...", "image/png", 201),
        ("a.jpg", b"\xff\xd8\xff\xe0...", "image/jpeg", 201),
        ("a.txt", "山田".encode(), "text/plain", 201),
        ("a.pdf", b"MZ\x90...", "application/pdf", 415),
        ("a.txt", b"\xff\xfe\x00", "text/plain", 415),
        ("a.exe", b"MZ\x90...", "application/octet-stream", 415),
        ("a.pdf", PDF + b"x" * 5_000_000, "application/pdf", 413),
        ("../../etc/passwd", b"text", "text/plain", 201),
    ],
)
def test_documents_are_what_they_say(
    identity: Served, name: str, content: bytes, media_type: str, status: int
) -> None:
    """Only the types we take, by their content, up to the limit; a path in a name is left out."""
    files = {"file": (name, content, media_type)}
    answer = newcomer(identity).ask("POST", "/api/documents/upload", files=files)
    assert answer.status_code == status, answer.text
    if status == 201:
        assert answer.json()["name"] == name.rpartition("/")[2]
    else:
        assert answer.headers["content-type"] == "application/problem+json"


def test_an_upload_that_is_no_form_is_rejected(identity: Served) -> None:
    """No multipart: 415. No file: 422. A broken form: 400. A body without end: 413, not read to the end."""
    ann = newcomer(identity)
    path = "/api/documents/upload"
    assert ann.ask("POST", path, content=b"x").status_code == 415
    assert ann.ask("POST", path, files={"other": ("a", b"x", "text/plain")}).status_code == 422
    broken = {"content-type": "multipart/form-data; boundary=x"}
    assert ann.ask("POST", path, content=b"not a form", headers=broken).status_code == 400
    begins = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    endless = (begins if number == 0 else b"x" * 65536 for number in range(200))
    assert ann.ask("POST", path, content=endless, headers=broken).status_code == 413


def test_administrators_forget_cached_profiles_and_look_at_redis(identity: Served) -> None:
    """An entry is gone when asked; the statistics count what is there, by category; others get 403."""
    ann, root = newcomer(identity), administrator(identity)
    first = ann.profile().json()
    assert root.ask("DELETE", f"/admin/cache/profiles/{ann.id}").status_code == 204
    assert ann.profile().json()["cached_at"] > first["cached_at"]

    stats = root.ask("GET", "/admin/redis/stats").json()
    by_name = {each["category"]: each for each in stats["categories"]}
    assert list(by_name) == ["sessions", "blacklist", "cache", "rate", "total"]
    assert stats["complete"]
    assert by_name["sessions"]["keys"]["value"] >= 2
    assert by_name["sessions"]["bytes"]["value"] > 100
    assert 0 < by_name["sessions"]["mean_ttl_seconds"]["value"] <= 3600
    assert by_name["sessions"]["keys"]["verdict"] == "below"
    for method, path in (
        ("GET", "/admin/redis/stats"),
        ("DELETE", f"/admin/cache/profiles/{ann.id}"),
        ("GET", f"/admin/users/{ann.id}/sessions"),
        ("DELETE", f"/admin/users/{ann.id}/sessions"),
        ("POST", "/admin/keys/rotate"),
    ):
        assert ann.ask(method, path).status_code == 403
        assert identity.client.request(method, path).status_code == 401


async def test_the_demonstrations_users_are_made_once(postgres: Postgres, valkey: Valkey) -> None:
    """Seeding twice makes each user once, and they can sign in with the password that everyone knows."""
    database = Secret(postgres.database("demo_data"))
    settings = Settings(
        url=Secret(valkey.url),
        database_url=database,
        development=True,
        logins_per_hour=10_000,
        password_memory=8,
    )
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        assert await seed(app.state.service) == [email for email, *_ in DEMO_USERS]
        assert await seed(app.state.service) == []
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            credentials = {"email": "taro@example.com", "password": DEMO_PASSWORD}
            assert (await client.post("/auth/login", json=credentials)).status_code == 200
