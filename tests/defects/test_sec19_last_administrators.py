"""SEC19: at identity and at the league two administrators who demoted each other at once left none."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera_services.league import DEMO_ADMINISTRATOR
from ephemera_services.runtime import DEMO_PASSWORD
from tests.defects.service_apps import ADMIN, App, opened, register, sign_in

_WAITING = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
Asked = Coroutine[Any, Any, httpx.Response]


async def _at_once(url: str, table: str, *requests: Asked) -> list[int]:
    """The statuses of requests that all begin their changes while the users' rows are locked."""
    async with await psycopg.AsyncConnection.connect(url) as holder:
        await holder.execute(f"SELECT 1 FROM {table} FOR UPDATE")
        tasks = [asyncio.create_task(request) for request in requests]
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as observer:
            async with asyncio.timeout(30):
                while (await (await observer.execute(_WAITING)).fetchone()) != (len(tasks),):
                    await asyncio.sleep(0.01)
        await holder.rollback()
        return [answer.status_code for answer in await asyncio.gather(*tasks)]


def _left(url: str, table: str) -> int:
    """How many administrators are not blocked."""
    with psycopg.connect(url) as sql:
        query = f"SELECT count(*) FROM {table} WHERE role = 'admin' AND blocked_at IS NULL"
        return int(sql.execute(query).fetchone()[0])  # type: ignore[index]


async def _administrators(app: App) -> list[dict[str, Any]]:
    """Sign in the first administrator of identity and another one."""
    first = (await sign_in(app, ADMIN["email"], ADMIN["password"])).json()
    email = await register(app)
    user_id = (await sign_in(app, email)).json()["user_id"]
    made = await _ask(app, first, "PUT", f"{user_id}/role", json={"role": "admin"})
    assert made.status_code == 200, made.text
    return [first, (await sign_in(app, email)).json()]


async def _ask(app: App, by: dict[str, Any], method: str, path: str, **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {by['access_token']}"}
    return await app.ask(method, f"/admin/users/{path}", headers=headers, **more)


@pytest.mark.parametrize(
    ("method", "route", "body"),
    [("PUT", "/role", {"role": "user"}), ("PUT", "/block", None), ("DELETE", "", None)],
)
async def test_sec19_of_two_administrators_of_identity_one_remains(
    method: str, route: str, body: dict[str, str] | None, server: Valkey, postgres: Postgres
) -> None:
    """When they demote, block or delete each other at once: the second one is no administrator any more."""
    url = postgres.database(f"sec19_{uuid4().hex[:12]}")
    variables = {"EPHEMERA_DATABASE_URL": url, "EPHEMERA_IDENTITY_LOGINS_PER_HOUR": "1000"}
    async with opened("identity", server, postgres, variables) as app:
        first, second = await _administrators(app)
        statuses = await _at_once(
            url,
            "identity.users",
            _ask(app, first, method, f"{second['user_id']}{route}", json=body),
            _ask(app, second, method, f"{first['user_id']}{route}", json=body),
        )
        assert sorted(statuses) == [204 if method == "DELETE" else 200, 403]
        assert _left(url, "identity.users") == 1


async def test_sec19_the_last_administrator_of_identity_keeps_the_role(
    server: Valkey, postgres: Postgres
) -> None:
    """They cannot demote themselves, even when the only other one is blocked; one of two can."""
    async with opened("identity", server, postgres) as app:
        first, second = await _administrators(app)
        of_first = f"{first['user_id']}/role"
        assert (await _ask(app, first, "PUT", f"{second['user_id']}/block")).status_code == 200
        refused = await _ask(app, first, "PUT", of_first, json={"role": "user"})
        assert (refused.status_code, "last administrator" in refused.text) == (409, True)
        assert (await _ask(app, first, "PUT", of_first, json={"role": "admin"})).status_code == 200
        first = (await sign_in(app, ADMIN["email"], ADMIN["password"])).json()
        assert (await _ask(app, first, "DELETE", f"{second['user_id']}/block")).status_code == 204
        assert (await _ask(app, first, "PUT", of_first, json={"role": "user"})).status_code == 200


async def _league_session(app: App, name: str) -> dict[str, Any]:
    """A user of the league: their number, and the headers of their session."""
    answer = await app.ask("POST", "/api/session", json={"name": name, "password": DEMO_PASSWORD})
    assert answer.status_code == 200, answer.text
    headers = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    return {"id": answer.json()["user_id"], "headers": headers}


@pytest.mark.parametrize("change", [{"role": "user"}, {"blocked": True}])
async def test_sec19_of_two_administrators_of_the_league_one_remains(
    change: dict[str, Any], server: Valkey, postgres: Postgres
) -> None:
    """When they demote or block each other at once: the second one is no administrator any more."""
    url = postgres.database(f"sec19_{uuid4().hex[:12]}")
    variables = {"EPHEMERA_DATABASE_URL": url, "EPHEMERA_LEAGUE_DEMO": "true"}
    async with opened("league", server, postgres, variables) as app:
        first = await _league_session(app, DEMO_ADMINISTRATOR)
        form = {"name": "second", "password": DEMO_PASSWORD}
        second_id = (await app.ask("POST", "/api/users", json=form)).json()["user_id"]

        def changed(by: dict[str, Any], user_id: int, **values: Any) -> Asked:
            path = f"/api/admin/users/{user_id}"
            return app.ask("PUT", path, headers=by["headers"], json=values)

        assert (await changed(first, second_id, role="admin")).status_code == 204
        second = await _league_session(app, "second")
        statuses = await _at_once(
            url,
            "league.users",
            changed(first, second["id"], **change),
            changed(second, first["id"], **change),
        )
        assert sorted(statuses) == [204, 403]
        assert _left(url, "league.users") == 1
