"""Accounts of identity over HTTP: passwords, addresses, the security log, export and deletion."""

from __future__ import annotations

import io
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.services.identity_users import (
    PASSWORD,
    RESOURCE_SERVER,
    Mailbox,
    Person,
    administrator,
    newcomer,
    register,
    sign_in,
)
from tests.services.scripture_readers import eventually
from tests.services.services import Served

NEW_PASSWORD = "tomato soup kettle river"
VERIFY, RESET, CHANGE = "Confirm your address", "Reset your password", "Confirm your new address"


def post(served: Served, path: str, **form: str) -> httpx.Response:
    """One request without a token."""
    return served.client.post(path, json=form)


def events(person: Person) -> list[str]:
    """What happened to a person's account, the oldest first."""
    listed = person.ask("GET", "/auth/security-log").json()["events"]
    return [each["what"] for each in reversed(listed)]


def introspected(served: Served, token: str) -> dict[str, Any]:
    """What a resource server learns about a token."""
    headers = {"authorization": f"Bearer {RESOURCE_SERVER}"}
    answer = served.client.post("/auth/introspect", data={"token": token}, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_story_of_an_account(identity: Served, second: Served, mailbox: Mailbox) -> None:
    """Register, confirm, sign in, forget the password, move to another address, get blocked, leave."""
    email, moved = register(identity), f"{uuid4().hex}@example.com"
    code = mailbox.code(email, VERIFY)
    assert post(identity, "/auth/email/confirm", code=code).status_code == 204
    ann = sign_in(identity, email)
    account = ann.ask("GET", "/auth/account").json()
    assert account["email_verified_at"] is not None
    assert introspected(second, ann.tokens["access_token"])["sub"] == ann.id

    assert post(second, "/auth/password/forgotten", email=email).status_code == 202
    code = mailbox.code(email, RESET)
    reset = post(second, "/auth/password/reset", code=code, new_password=NEW_PASSWORD)
    assert reset.json() == {"ended": 1}
    assert ann.profile().status_code == 401
    assert "was changed" in mailbox.receive(email, "Your password was changed")
    ann = sign_in(identity, email, NEW_PASSWORD)

    patched = ann.ask("PATCH", f"/api/profiles/{ann.id}", json={"phone": "123"})
    assert (patched.json()["phone"], patched.json()["first_name"]) == ("123", "太郎")
    files = {"file": ("cv.txt", b"my life", "text/plain")}
    document = ann.ask("POST", "/api/documents/upload", files=files).json()["document_id"]
    assert ann.ask("GET", f"/api/documents/{document}").content == b"my life"

    asked = ann.ask("PUT", "/auth/email", json={"email": moved, "password": NEW_PASSWORD})
    assert asked.status_code == 202
    assert post(identity, "/auth/email/confirm", code=mailbox.code(moved, CHANGE)).status_code == 204
    assert mailbox.receive(email, "Your address was changed")
    assert ann.profile().json()["email"] == moved
    assert ann.profile(second).json()["email"] == moved
    ann = sign_in(second, moved, NEW_PASSWORD)

    root = administrator(identity)
    found = root.ask("GET", "/admin/users", params={"q": moved[:20]}).json()
    assert [each["user_id"] for each in found["users"]] == [ann.id]
    assert root.ask("PUT", f"/admin/users/{ann.id}/block").status_code == 200
    assert ann.profile().status_code == 401
    assert post(second, "/auth/login", email=moved, password=NEW_PASSWORD).status_code == 403
    assert root.ask("DELETE", f"/admin/users/{ann.id}/block").status_code == 204
    ann = sign_in(second, moved, NEW_PASSWORD)
    assert {"registered", "password_reset", "email_changed", "blocked", "unblocked"} <= set(events(ann))

    assert ann.ask("POST", "/auth/account/delete", json={"password": NEW_PASSWORD}).status_code == 204
    assert ann.profile(identity).status_code == 401
    assert not introspected(identity, ann.tokens["access_token"])["active"]
    assert post(identity, "/auth/login", email=moved, password=NEW_PASSWORD).status_code == 401
    assert root.ask("GET", f"/admin/users/{ann.id}").status_code == 404
    assert mailbox.receive(moved, "Your account was deleted")


def test_a_new_password_ends_the_other_sign_ins(identity: Served, second: Served) -> None:
    """The sign-in that changed it stays, all others end, on every process; the old password is refused."""
    ann = newcomer(identity)
    others = [ann.signed_in_again() for _ in range(2)]
    form = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    assert ann.ask("POST", "/auth/password", json=form).json() == {"ended": 2}
    assert ann.profile(second).status_code == ann.profile().status_code == 200
    assert ann.refresh().status_code == 200
    assert [each.profile(second).status_code for each in others] == [401, 401]
    assert [each.refresh().status_code for each in others] == [401, 401]
    assert post(identity, "/auth/login", email=ann.email, password=PASSWORD).status_code == 401
    sign_in(identity, ann.email, NEW_PASSWORD)


@pytest.mark.parametrize(
    ("method", "path", "form"),
    [
        ("POST", "/auth/password", {"current_password": "not the one", "new_password": NEW_PASSWORD}),
        ("PUT", "/auth/email", {"email": "thief@example.com", "password": "not the one"}),
        ("POST", "/auth/account/delete", {"password": "not the one"}),
    ],
)
def test_a_stolen_token_alone_takes_no_account_over(
    identity: Served, method: str, path: str, form: dict[str, str]
) -> None:
    """What could do that requires the password once more; 403 without it, and nothing has changed."""
    ann = newcomer(identity)
    assert ann.ask(method, path, json=form).status_code == 403
    assert ann.profile().json()["email"] == ann.email
    assert ann.signed_in_again().id == ann.id


@pytest.mark.parametrize(
    "weak", ["password123", "qwertyuiop", "aaaaaaaaaaaaaaaa", "1234567890", "p4ssw0rd!!", "yamadayamada"]
)
def test_passwords_that_are_guessed_early_are_refused(identity: Served, weak: str) -> None:
    """422 with advice that does not repeat it: at registration, at a change and at a reset."""
    form = {"email": f"{uuid4().hex}@example.com", "first_name": "Taro", "last_name": "Yamada"}
    refused = post(identity, "/auth/register", **form, password=weak)
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["at"] == "body.password"
    assert weak not in refused.text


def test_a_weak_new_password_is_refused_too(identity: Served, mailbox: Mailbox) -> None:
    """A change and a reset have the same rule, and a refused reset does not use its code up."""
    ann = newcomer(identity)
    form = {"current_password": PASSWORD, "new_password": "password123"}
    assert ann.ask("POST", "/auth/password", json=form).status_code == 422
    post(identity, "/auth/password/forgotten", email=ann.email)
    code = mailbox.code(ann.email, RESET)
    for password, status in (("password123", 422), (ann.email, 422), (NEW_PASSWORD, 200)):
        answer = post(identity, "/auth/password/reset", code=code, new_password=password)
        assert answer.status_code == status, answer.text


def test_a_code_works_once_even_if_it_is_used_at_once(
    identity: Served, second: Served, mailbox: Mailbox
) -> None:
    """Of many who use the same code at the same time one succeeds, and the others get 400."""
    email = register(identity)
    post(identity, "/auth/password/forgotten", email=email)
    code = mailbox.code(email, RESET)

    def reset(number: int) -> int:
        form = {"code": code, "new_password": f"{NEW_PASSWORD} {number}"}
        return (identity, second)[number % 2].client.post("/auth/password/reset", json=form).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(pool.map(reset, range(6)))
    assert statuses == [200] + [400] * 5


def test_codes_are_for_one_purpose_and_the_newest_counts(identity: Served, mailbox: Mailbox) -> None:
    """A code to confirm an address resets no password; a newer code replaces the one before."""
    email = register(identity)
    verify = mailbox.code(email, VERIFY)
    assert post(identity, "/auth/password/reset", code=verify, new_password=NEW_PASSWORD).status_code == 400
    post(identity, "/auth/email/verification", email=email)
    newer = mailbox.code(email, VERIFY)
    assert post(identity, "/auth/email/confirm", code=verify).status_code == 400
    assert post(identity, "/auth/email/confirm", code=newer).status_code == 204
    assert post(identity, "/auth/email/confirm", code="made up").status_code == 400


def test_a_code_expires(identity: Served, mailbox: Mailbox, places: dict[str, str]) -> None:
    """After its time a code is refused."""
    email = register(identity)
    code = mailbox.code(email, VERIFY)
    with psycopg.connect(places["EPHEMERA_DATABASE_URL"], autocommit=True) as sql:
        sql.execute(
            "UPDATE identity.mail_tokens SET expires_at = now() - interval '1 second' WHERE email = %s",
            [email],
        )
    assert post(identity, "/auth/email/confirm", code=code).status_code == 400


def test_sql_has_no_code(identity: Served, mailbox: Mailbox, places: dict[str, str]) -> None:
    """A reader of the database cannot reset a password: it has digests of codes alone, and no mails."""
    email = register(identity)
    code = mailbox.code(email, VERIFY)
    with psycopg.connect(places["EPHEMERA_DATABASE_URL"]) as sql:
        found = sql.execute("SELECT row_to_json(t)::text FROM identity.mail_tokens t").fetchall()
        found += sql.execute("SELECT row_to_json(t)::text FROM identity.mails t").fetchall()
    assert any(email in text for (text,) in found)
    assert not any(code in text for (text,) in found)


def test_an_address_that_is_taken_is_not_moved_to(identity: Served, mailbox: Mailbox) -> None:
    """Only its owner, who gets the code, learns that it has an account: 409, and both accounts stay."""
    ann, bob = newcomer(identity), newcomer(identity)
    asked = ann.ask("PUT", "/auth/email", json={"email": bob.email, "password": PASSWORD})
    assert asked.status_code == 202
    assert post(identity, "/auth/email/confirm", code=mailbox.code(bob.email, CHANGE)).status_code == 409
    assert ann.profile().json()["email"] == ann.email
    assert bob.signed_in_again().id == bob.id


def test_a_mail_tells_the_owner_what_the_answer_does_not(identity: Served, mailbox: Mailbox) -> None:
    """Registering a confirmed address again answers as the first time; a mail tells its owner."""
    email = register(identity)
    post(identity, "/auth/email/confirm", code=mailbox.code(email, VERIFY))
    register(identity, email=email)
    assert "is as it was" in mailbox.receive(email, "You have an account already")
    unknown = f"{uuid4().hex}@example.com"
    known, stranger = (post(identity, "/auth/password/forgotten", email=each) for each in (email, unknown))
    assert (known.status_code, known.content) == (stranger.status_code, stranger.content)
    assert mailbox.code(email, RESET)
    assert mailbox.to(unknown) == {}


def test_the_security_log_shows_what_happened_and_from_where(identity: Served) -> None:
    """Sign-ins, refused ones, a stolen token and sign-outs, with address and browser; of no other user."""
    ann, bob = newcomer(identity), newcomer(identity)
    post(identity, "/auth/login", email=ann.email, password="not the one")
    eventually(lambda: "sign_in_refused" in events(ann))
    phone = ann.signed_in_again()
    stolen = phone.tokens["refresh_token"]
    phone.refresh()
    identity.client.post("/auth/refresh", json={"refresh_token": stolen})
    tablet = ann.signed_in_again()
    tablet.ask("POST", "/auth/logout")
    happened = events(ann)
    assert sorted(happened) == sorted(
        ["registered", *["signed_in"] * 3, "sign_in_refused", "refresh_token_reused", "signed_out"]
    )
    newest = ann.ask("GET", "/auth/security-log").json()["events"][0]
    assert newest["ip_address"] == "127.0.0.1"
    assert "httpx" in newest["user_agent"]
    assert events(bob) == ["registered", "signed_in"]


def test_an_export_has_everything_and_no_secret(identity: Served) -> None:
    """The account, its sign-ins, its log and its documents, and neither hashes nor token ids."""
    ann = newcomer(identity)
    files = {"file": ("../日記.txt", b"diary", "text/plain")}
    ann.ask("POST", "/api/documents/upload", files=files)
    answer = ann.ask("GET", "/auth/account/export")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        facts = json.loads(archive.read("account.json"))
        (document,) = facts["documents"]
        assert archive.read(f"documents/{document['document_id']}/日記.txt") == b"diary"
    assert facts["account"]["email"] == ann.email
    assert [each["id"] for each in facts["sessions"]] == [ann.sid]
    assert [each["what"] for each in facts["log"]] == ["registered", "signed_in", "exported"]
    text = json.dumps(facts)
    assert "argon2" not in text
    assert "refresh_id" not in text


def test_a_deleted_account_leaves_nothing_but_that_its_sign_ins_ended(
    identity: Served, second: Served, places: dict[str, str]
) -> None:
    """No row names the user; other services still learn that the tokens are void; the address is free."""
    ann = newcomer(identity)
    ann.ask("POST", "/api/documents/upload", files={"file": ("a.txt", b"x", "text/plain")})
    before = len(second.client.get("/.well-known/ended-sign-ins").json()["ended"])
    assert ann.ask("POST", "/auth/account/delete", json={"password": PASSWORD}).status_code == 204
    assert ann.profile(second).status_code == 401
    assert ann.refresh(second).status_code == 401
    eventually(lambda: len(second.client.get("/.well-known/ended-sign-ins").json()["ended"]) > before)
    with psycopg.connect(places["EPHEMERA_DATABASE_URL"]) as sql:
        for table in ("users", "sign_ins", "documents", "security_events", "mail_tokens"):
            rows = sql.execute(f"SELECT row_to_json(t)::text FROM identity.{table} t").fetchall()
            assert not [text for (text,) in rows if ann.id in text or ann.email in text], table
        left = sql.execute("SELECT ip_address, user_agent FROM identity.sign_ins WHERE id = %s", [ann.sid])
        assert left.fetchone() == ("", "")
    register(identity, email=ann.email)
    assert sign_in(identity, ann.email).id != ann.id


def test_a_password_changed_during_a_sign_in_refuses_it(identity: Served) -> None:
    """No sign-in with the old password survives its change, however they overlap."""
    ann = newcomer(identity)
    old, new = PASSWORD, NEW_PASSWORD
    for _ in range(4):
        with ThreadPoolExecutor(4) as pool:
            form = {"email": ann.email, "password": old}
            begun = [pool.submit(identity.client.post, "/auth/login", json=form) for _ in range(3)]
            change = {"current_password": old, "new_password": new}
            assert ann.ask("POST", "/auth/password", json=change).status_code == 200
        others = [each.result() for each in begun]
        signed_in = [Person(identity, each.json(), ann.email) for each in others if each.status_code == 200]
        assert {each.status_code for each in others} <= {200, 401}
        assert [each.profile().status_code for each in signed_in] == [401] * len(signed_in)
        old, new = new, old
