"""Rows of identity that no longer matter are removed, and no others; nothing runs after shutdown."""

from __future__ import annotations

import math
from datetime import timedelta

import psycopg
from sqlalchemy import text

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import opened, register, sign_in


async def test_a_sign_in_removes_the_users_expired_ones(server: Valkey, postgres: Postgres) -> None:
    """Expired sign-ins of the same user go; valid ones and those of another user stay."""
    url = postgres.database("identity_upkeep")
    async with opened("identity", server, postgres, {"EPHEMERA_DATABASE_URL": url}) as app:
        ann, bob = [await register(app) for _ in range(2)]
        for email in (ann, ann, bob):
            assert (await sign_in(app, email)).status_code == 200
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as sql:
            await sql.execute(
                "UPDATE identity.sign_ins SET expires_at = now() - interval '1 day' WHERE id IN ("
                " SELECT DISTINCT ON (user_id) id FROM identity.sign_ins ORDER BY user_id, created_at)"
            )
            assert (await sign_in(app, ann)).status_code == 200
            found = await sql.execute(
                "SELECT email, count(*) FROM identity.sign_ins JOIN identity.users"
                " ON identity.users.id = user_id GROUP BY email"
            )
            assert dict(await found.fetchall()) == {ann: 2, bob: 1}


async def test_no_invalidation_is_repeated_after_the_end(postgres: Postgres) -> None:
    """A profile that could not be invalidated is tried again until the accounts close, and not after that."""
    with embedded.valkey() as lost:
        async with opened("identity", lost, postgres) as app:
            accounts = app.service.accounts
            known = await accounts.by_email(await register(app))
            lost.kill()
            await accounts.update_profile(str(known.id), first_name="Ann")
            assert len(accounts._invalidating) == 1
            await accounts.aclose()
            assert not accounts._invalidating


async def test_a_rotation_stores_until_when_the_former_key_verifies(
    server: Valkey, postgres: Postgres
) -> None:
    """Other processes, and this one after a restart, stop to accept it when the process that rotated does."""
    async with opened("identity", server, postgres) as app:
        await app.service.keys.rotate(timedelta(0))
        known = {key.kid: key.verifies_until for key in app.service.keys.ring.keys}
        async with app.service.engine.connect() as sql:
            rows = await sql.execute(text("SELECT kid, verifies_until FROM identity.signing_keys"))
            assert {row.kid: row.verifies_until for row in rows} == known
    former, fresh = known.values()
    assert math.isfinite(former)
    assert math.isinf(fresh)
