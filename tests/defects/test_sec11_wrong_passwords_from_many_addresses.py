"""SEC11: 30 wrong passwords from 30 addresses were all checked: there was no limit by account."""

from __future__ import annotations

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import ADMIN, opened, register, sign_in
from tests.services.slides_users import EDITOR, credentials

_OWNER = "198.51.100.7"


async def test_sec11_identity_limits_wrong_passwords_by_account(server: Valkey, postgres: Postgres) -> None:
    """Guessing from many addresses ends after ten; the owner still signs in from a known address."""
    async with opened("identity", server, postgres) as app:
        email = await register(app)
        assert (await sign_in(app, email, address=_OWNER)).status_code == 200
        guesses = [await sign_in(app, email.upper(), "wrong", f"203.0.113.{i}") for i in range(30)]
        assert [each.status_code for each in guesses] == [401] * 10 + [429] * 20
        assert guesses[-1].json()["violated-policies"] == ["account"]
        assert (await sign_in(app, email, address="198.51.100.8")).status_code == 429, "an unknown address"
        assert (await sign_in(app, email, address=_OWNER)).status_code == 200
        assert (await sign_in(app, ADMIN["email"], ADMIN["password"])).status_code == 200


async def test_sec11_an_unknown_account_is_limited_alike(server: Valkey, postgres: Postgres) -> None:
    """The limit does not tell whether an account exists; right passwords do not use it up."""
    async with opened("identity", server, postgres) as app:
        guesses = [await sign_in(app, "x@example.com", "wrong", f"203.0.113.{i}") for i in range(12)]
        assert [each.status_code for each in guesses] == [401] * 10 + [429] * 2
        email = await register(app)
        right = [await sign_in(app, email, address=f"203.0.113.{i}") for i in range(12)]
        assert {each.status_code for each in right} == {200}


async def test_sec11_league_limits_wrong_passwords_by_name(server: Valkey, postgres: Postgres) -> None:
    """The same for the league's names."""
    async with opened("league", server, postgres) as app:
        form = {"name": "ann", "password": "correct horse battery"}
        assert (await app.ask("POST", "/api/users", json=form)).status_code == 201
        assert (await app.ask("POST", "/api/session", json=form, address=_OWNER)).status_code == 200
        guess = {"name": "Ann", "password": "wrong"}
        guesses = [
            await app.ask("POST", "/api/session", json=guess, address=f"203.0.113.{i}") for i in range(30)
        ]
        assert [each.status_code for each in guesses] == [401] * 10 + [429] * 20
        assert (await app.ask("POST", "/api/session", json=form, address=_OWNER)).status_code == 200


async def test_sec11_slides_limits_wrong_passwords_by_account(server: Valkey, postgres: Postgres) -> None:
    """The same for an address in an organization of slides; the same address elsewhere is another account."""
    async with opened("slides", server, postgres) as app:
        form = credentials(EDITOR)
        assert (await app.ask("POST", "/auth/login", json=form, address=_OWNER)).status_code == 200
        guess = {**form, "email": EDITOR.upper(), "password": "wrong"}
        guesses = [
            await app.ask("POST", "/auth/login", json=guess, address=f"203.0.113.{i}") for i in range(30)
        ]
        assert [each.status_code for each in guesses] == [401] * 10 + [429] * 20
        elsewhere = {**guess, "organization": "Studio"}
        assert (await app.ask("POST", "/auth/login", json=elsewhere)).status_code == 401
        assert (await app.ask("POST", "/auth/login", json=form, address=_OWNER)).status_code == 200
