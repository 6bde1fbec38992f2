"""SEC5: a demotion that Redis missed was forgotten with the process that made it, and the session went on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera_services.league import DEMO_ADMINISTRATOR, DEMO_HELPER
from ephemera_services.runtime import DEMO_PASSWORD
from tests.defects.service_apps import App, opened
from tests.services.slides_users import ADMIN, EDITOR, credentials

_WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
Headers = dict[str, str]
Ask = Callable[[App, Headers], Awaitable[httpx.Response]]


@pytest.fixture
def frozen() -> Iterator[Valkey]:
    """A server that can be frozen."""
    with embedded.valkey() as running:
        yield running


async def _cookie(app: App, path: str, form: dict[str, Any]) -> tuple[Headers, dict[str, Any]]:
    answer = await app.ask("POST", path, json=form)
    assert answer.status_code == 200, answer.text
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}, answer.json()


async def _missed_by_redis(
    app: App, server: Valkey, url: str, table: str, user_id: str, change: Awaitable[httpx.Response]
) -> httpx.Response:
    """The answer to a change of a user that is committed while Redis is frozen."""
    async with (
        await psycopg.AsyncConnection.connect(url) as holder,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as observer,
    ):
        await holder.execute(f"SELECT 1 FROM {table} WHERE id = %s FOR UPDATE", (user_id,))
        changing = asyncio.ensure_future(change)
        async with asyncio.timeout(30):
            while await (await observer.execute(_WAITS)).fetchone() is None:
                await asyncio.sleep(0.01)
        server.pause()
        await holder.rollback()
        return await changing


async def _refused_after_a_restart(
    name: str, server: Valkey, postgres: Postgres, variables: dict[str, str], ask: Callable[[App], Any]
) -> None:
    """Another process of the service, started later, ends the session."""
    server.resume()
    async with opened(name, server, postgres, variables, empty=False) as app, asyncio.timeout(30):
        while (await ask(app)).status_code != 401:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("change", [{"role": "user"}, {"blocked": True}])
async def test_sec5_a_change_at_the_league_outlives_its_process(
    change: dict[str, Any], frozen: Valkey, postgres: Postgres
) -> None:
    """Redis misses it, the process ends, and the user's session ends all the same."""
    url = postgres.database(f"sec5_{uuid4().hex[:12]}")
    variables = {"EPHEMERA_DATABASE_URL": url, "EPHEMERA_LEAGUE_DEMO": "true"}
    async with opened("league", frozen, postgres, variables) as app:
        form = {"name": DEMO_ADMINISTRATOR, "password": DEMO_PASSWORD}
        admin, _ = await _cookie(app, "/api/session", form)
        helper, account = await _cookie(app, "/api/session", {**form, "name": DEMO_HELPER})
        path = f"/api/admin/users/{account['user_id']}"
        asked = app.ask("PUT", path, headers=admin, json=change)
        answer = await _missed_by_redis(app, frozen, url, "league.users", account["user_id"], asked)
        assert answer.status_code == 503, answer.text
    await _refused_after_a_restart(
        "league", frozen, postgres, variables, lambda app: app.ask("GET", "/api/me", headers=helper)
    )


@pytest.mark.parametrize(
    ("method", "route", "body"),
    [("PUT", "/role", {"role": "viewer"}), ("PUT", "/blocked", {"blocked": True}), ("DELETE", "", None)],
)
async def test_sec5_a_change_at_slides_outlives_its_process(
    method: str, route: str, body: Any, frozen: Valkey, postgres: Postgres
) -> None:
    """Redis misses a demotion, a block or a deletion, the process ends, and the session ends all the same."""
    url = postgres.database(f"sec5_{uuid4().hex[:12]}")
    variables = {"EPHEMERA_DATABASE_URL": url}
    async with opened("slides", frozen, postgres, variables) as app:
        admin, _ = await _cookie(app, "/auth/login", credentials(ADMIN))
        editor, account = await _cookie(app, "/auth/login", credentials(EDITOR))
        asked = app.ask(method, f"/admin/users/{account['user_id']}{route}", headers=admin, json=body)
        answer = await _missed_by_redis(app, frozen, url, "slides.users", account["user_id"], asked)
        assert answer.status_code == 503, answer.text
    await _refused_after_a_restart(
        "slides", frozen, postgres, variables, lambda app: app.ask("GET", "/auth/me", headers=editor)
    )
