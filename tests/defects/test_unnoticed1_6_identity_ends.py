"""Tests that were missing, 1 and 6: SQL alone refuses a refresh, and `end_all` leaves no records."""

from __future__ import annotations

import pytest

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import ADMIN, App, opened, register, sign_in


async def _refresh(app: App, refresh_token: str) -> int:
    answer = await app.ask("POST", "/auth/refresh", json={"refresh_token": refresh_token})
    return answer.status_code


@pytest.mark.parametrize("by", ["sign-out", "administrator"])
async def test_unnoticed1_an_ended_sign_in_is_not_refreshed_when_only_sql_knows(
    by: str, server: Valkey, postgres: Postgres
) -> None:
    """Redis lost everything and the process is a new one, which remembers no revocation: SQL refuses it."""
    database = {"EPHEMERA_DATABASE_URL": postgres.database(f"unnoticed1_{by[:4]}")}
    async with opened("identity", server, postgres, database) as app:
        email = await register(app)
        ended, alive = (await sign_in(app, email)).json(), (await sign_in(app, email)).json()
        who = {"authorization": f"Bearer {ended['access_token']}"}
        if by == "sign-out":
            assert (await app.ask("POST", "/auth/logout", headers=who)).status_code == 204
        else:
            root = (await sign_in(app, ADMIN["email"], ADMIN["password"])).json()
            path, who = (
                f"/admin/users/{ended['user_id']}/sessions",
                {"authorization": f"Bearer {root['access_token']}"},
            )
            assert (await app.ask("DELETE", path, headers=who)).json() == {"ended": 2}
    async with opened("identity", server, postgres, database) as fresh:  # on an emptied Redis
        assert await _refresh(fresh, ended["refresh_token"]) == 401
        assert await _refresh(fresh, alive["refresh_token"]) == (200 if by == "sign-out" else 401)


async def test_unnoticed6_ending_all_sign_ins_leaves_no_records(server: Valkey, postgres: Postgres) -> None:
    """No record of the user's sign-ins, and no index, is left in Redis."""
    async with opened("identity", server, postgres) as app:
        email = await register(app)
        user_id = {(await sign_in(app, email)).json()["user_id"] for _ in range(3)}.pop()
        root = (await sign_in(app, ADMIN["email"], ADMIN["password"])).json()
        assert str(server.ask("KEYS", f"session:*{user_id}*")).count(user_id) == 3
        who = {"authorization": f"Bearer {root['access_token']}"}
        answer = await app.ask("DELETE", f"/admin/users/{user_id}/sessions", headers=who)
        assert answer.json() == {"ended": 3}
        assert server.ask("KEYS", f"session*{user_id}*") == []
