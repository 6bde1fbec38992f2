"""Identity's mails: limits, a mail server that fails, addresses that must be confirmed, and upkeep."""

from __future__ import annotations

import asyncio
import re
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from ephemera.embedded import Postgres, Valkey, free_ports
from ephemera_services.identity import Settings
from ephemera_services.identity.upkeep import delete_old_rows
from ephemera_services.runtime import InvalidSettings, Secret, read_settings
from tests.defects.service_apps import PASSWORD, App, opened, register, sign_in
from tests.services.identity_users import Mailbox
from tests.services.scripture_mail import MailServer

VERIFY = "Confirm your address"


async def eventually(holds: Callable[[], Awaitable[Any]]) -> Any:
    """What a condition gives as soon as it holds."""
    deadline = time.monotonic() + 60
    while not (found := await holds()):
        assert time.monotonic() < deadline, "it did not come to hold"
        await asyncio.sleep(0.02)
    return found


async def execute(app: App, statement: str, **values: Any) -> Any:
    """Run a statement in the service's SQL; the first column of the rows, if it returns rows."""
    async with app.service.engine.begin() as sql:
        result = await sql.execute(text(statement), values)
        return list(result.scalars()) if result.returns_rows else None


def _smtp(url: str) -> dict[str, str]:
    return {
        "EPHEMERA_IDENTITY_MAIL_URL": url,
        "EPHEMERA_IDENTITY_MAIL_PLAINTEXT": "true",
        "EPHEMERA_IDENTITY_PUBLIC_URL": "https://id.example.com/",
    }


async def test_a_refused_mail_is_sent_later_with_a_new_code(server: Valkey, postgres: Postgres) -> None:
    """The request waits in SQL; when it is due again it is sent, its code works, and the request is gone."""
    with MailServer() as mails:
        mails.refuse = 1
        async with opened("identity", server, postgres, _smtp(mails.url)) as app:
            email = await register(app)
            left = "SELECT attempts FROM identity.mails"

            async def was_tried() -> bool:
                return mails.refused == 1 and await execute(app, left) == [1]

            await eventually(was_tried)
            assert mails.taken == []
            await execute(app, "UPDATE identity.mails SET next_at = now()")
            app.service.mailer.wake()

            async def is_gone() -> bool:
                return not await execute(app, left)

            await eventually(is_gone)
            (mail,) = mails.taken
            assert (mail["To"], mail["Subject"]) == (email, VERIFY)
            link = re.search(r"https://id\.example\.com/#verify=([\w-]{43})", str(mail.get_payload()))
            assert link is not None
            answer = await app.ask("POST", "/auth/email/confirm", json={"code": link[1]})
            assert answer.status_code == 204


async def test_no_answer_waits_for_the_mail_server(server: Valkey, postgres: Postgres) -> None:
    """With no server there, registration and a forgotten password are answered as usual."""
    nobody = f"smtp://127.0.0.1:{free_ports(1)[0]}"
    async with opened("identity", server, postgres, _smtp(nobody)) as app:
        email = await register(app)
        answer = await app.ask("POST", "/auth/password/forgotten", json={"email": email})
        assert answer.status_code == 202
        assert sorted(await execute(app, "SELECT kind FROM identity.mails")) == ["registered", "reset"]


async def test_mails_are_limited_by_account_and_by_address(server: Valkey, postgres: Postgres) -> None:
    """Five per hour to an account from all addresses, its registration included; ten from one address."""
    async with opened("identity", server, postgres) as app:
        email = await register(app)

        async def forgotten(to: str, address: str) -> int:
            form = {"email": to}
            answer = await app.ask("POST", "/auth/password/forgotten", json=form, address=address)
            return answer.status_code

        spellings = [email.upper() if number % 2 else email for number in range(5)]
        by_account = [await forgotten(each, f"203.0.113.{at}") for at, each in enumerate(spellings)]
        assert by_account == [202] * 4 + [429]
        nobody = [await forgotten("nobody@example.com", f"203.0.113.{at + 50}") for at in range(6)]
        assert nobody == [202] * 5 + [429], "an unknown address has the same limit"
        others = [await forgotten(f"user{number}@example.com", "198.51.100.1") for number in range(11)]
        assert others == [202] * 10 + [429]


async def test_codes_are_tried_within_a_limit(server: Valkey, postgres: Postgres) -> None:
    """Thirty per hour from an address, whatever the code is for."""
    limit = {"EPHEMERA_IDENTITY_CONFIRMATIONS_PER_HOUR": "3"}
    async with opened("identity", server, postgres, limit) as app:
        forms = [
            ("/auth/email/confirm", {"code": "made up"}),
            ("/auth/password/reset", {"code": "made up", "new_password": PASSWORD}),
        ] * 2
        answers = [await app.ask("POST", path, json=form) for path, form in forms]
        assert [each.status_code for each in answers] == [400, 400, 400, 429]


async def test_a_password_is_not_guessed_with_a_stolen_token(server: Valkey, postgres: Postgres) -> None:
    """Asking for the password once more has the limit of sign-ins: ten wrong ones per hour and account."""
    async with opened("identity", server, postgres) as app:
        tokens = (await sign_in(app, await register(app))).json()
        bearer = {"authorization": f"Bearer {tokens['access_token']}"}
        statuses = [
            (
                await app.ask("POST", "/auth/account/delete", json={"password": "x"}, headers=bearer)
            ).status_code
            for _ in range(11)
        ]
        assert statuses == [403] * 10 + [429]


async def test_an_address_can_be_required_to_be_confirmed(
    server: Valkey, postgres: Postgres, tmp_path: Path
) -> None:
    """Before it is, a sign-in is refused as for an unknown address; afterwards it works."""
    mailbox = Mailbox(tmp_path / "mails")
    variables = {**mailbox.variables, "EPHEMERA_IDENTITY_REQUIRE_VERIFIED_EMAIL": "true"}
    async with opened("identity", server, postgres, variables) as app:
        email = await register(app)
        refused, unknown = await sign_in(app, email), await sign_in(app, "nobody@example.com")
        assert (refused.status_code, refused.content) == (401, unknown.content)
        code = await asyncio.to_thread(mailbox.code, email, VERIFY)
        assert (await app.ask("POST", "/auth/email/confirm", json={"code": code})).status_code == 204
        assert (await sign_in(app, email)).status_code == 200
        assert stat.S_IMODE(mailbox.folder.stat().st_mode) == 0o700


async def test_upkeep_deletes_what_no_longer_matters(server: Valkey, postgres: Postgres) -> None:
    """Old events, expired codes, mails of yesterday, orphaned sign-ins and old revocations go; no others."""
    async with opened("identity", server, postgres) as app:
        user = UUID((await sign_in(app, await register(app))).json()["user_id"])
        event = (
            "INSERT INTO identity.security_events (user_id, what, by_admin, ip_address, user_agent, at)"
            " VALUES (:user, :what, false, '', '', now() - :age * interval '1 day')"
        )
        mail = 'INSERT INTO identity.mails (kind, "to", created_at, next_at) VALUES'
        mail += " ('reset', :to, now() - :age * interval '1 hour', now() + interval '1 hour')"
        sign_in_row = (
            "INSERT INTO identity.sign_ins (id, refresh_id, ip_address, user_agent, expires_at, ended_at)"
            " VALUES (gen_random_uuid(), :name, '', '', now(), now() - :age * interval '1 minute')"
        )
        revoked = (
            "INSERT INTO identity.revoked_tokens (id, revoked_at, revoked_by)"
            " VALUES (:name, now() - :age * interval '1 minute', 1)"
        )
        for name, age in (("old", 91), ("young", 89)):
            await execute(app, event, user=user, what=name, age=age)
        for name, age in (("old", 25), ("young", 23)):
            await execute(app, mail, to=name, age=age)
        for name, age in (("old", 61), ("young", 59)):
            await execute(app, sign_in_row, name=name, age=age)
            await execute(app, revoked, name=name, age=age)
        await delete_old_rows(app.service.engine)
        for query in (
            "SELECT what FROM identity.security_events WHERE what IN ('old', 'young')",
            """SELECT "to" FROM identity.mails WHERE "to" IN ('old', 'young')""",
            "SELECT refresh_id FROM identity.sign_ins WHERE user_id IS NULL",
            "SELECT id FROM identity.revoked_tokens",
        ):
            assert await execute(app, query) == ["young"]
        assert (
            len(await execute(app, "SELECT 1 FROM identity.sign_ins WHERE user_id = :user", user=user)) == 1
        )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MAIL_URL", "http://mail.example.com"),
        ("MAIL_CA", "/nowhere"),
        ("MAIL_PLAINTEXT", "true"),
        ("PUBLIC_URL", "id.example.com"),
        ("EVENTS_URL", "http://redis"),
    ],
)
def test_wrong_settings_are_named(variable: str, value: str) -> None:
    """At startup, with the variable, and without a secret."""
    with pytest.raises(InvalidSettings, match=f"EPHEMERA_IDENTITY_{variable}: "):
        read_settings(Settings, {f"EPHEMERA_IDENTITY_{variable}": value}).check()
    assert "secret" not in repr(Settings(mail_url=Secret("smtps://user:secret@mail")))


async def test_a_new_hash_of_an_old_password_replaces_no_new_password(
    server: Valkey, postgres: Postgres
) -> None:
    """A sign-in that verified the old password, and is slow to store a new hash of it, comes too late."""
    async with opened("identity", server, postgres) as app:
        email = await register(app)
        verified = await app.service.accounts.by_email(email)
        tokens = (await sign_in(app, email)).json()
        form = {"current_password": PASSWORD, "new_password": "tomato soup kettle river"}
        bearer = {"authorization": f"Bearer {tokens['access_token']}"}
        changed = await app.ask("POST", "/auth/password", json=form, headers=bearer)
        assert changed.status_code == 200
        hashed = await app.service.passwords.hash(PASSWORD)
        await app.service.accounts.change_hash(verified.id, hashed, verified.password_version)
        assert (await sign_in(app, email)).status_code == 401
        assert (await sign_in(app, email, "tomato soup kettle river")).status_code == 200
