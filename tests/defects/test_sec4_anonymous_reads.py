"""SEC4: anonymous reads of everything that was revoked recently had no limit."""

from __future__ import annotations

import httpx

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import App, opened

_LIMIT = {"EPHEMERA_IDENTITY_REVOCATION_LISTS_PER_HOUR": "3"}


async def _ended(app: App, after: str = "0", address: str = "192.0.2.1") -> httpx.Response:
    path = f"/.well-known/ended-sign-ins?after={after}"
    return await app.ask("GET", path, address=address)


async def test_sec4_reads_of_all_revocations_are_limited(server: Valkey, postgres: Postgres) -> None:
    """By address, and only reads of everything: a service that follows the list is never refused."""
    async with opened("identity", server, postgres, _LIMIT) as app:
        cursor = (await _ended(app)).json()["cursor"]
        assert [(await _ended(app)).status_code for _ in range(3)] == [200, 200, 429]
        assert (await _ended(app, address="192.0.2.2")).status_code == 200
        for _ in range(20):
            answer = await _ended(app, cursor)
            assert answer.status_code == 200
            cursor = answer.json()["cursor"]


async def test_sec4_an_old_cursor_counts_as_none(server: Valkey, postgres: Postgres) -> None:
    """Two minutes later a reader with the cursor of then gets everything, so it is counted."""
    async with opened("identity", server, postgres, _LIMIT) as app:
        first = (await _ended(app)).json()["cursor"]
        feed = app.service.ended
        for _ in range(2):  # a minute each
            feed._marked_at -= 61
            feed._read_at -= 61
            async with feed._engine.begin() as sql:
                await sql.exec_driver_sql("SELECT pg_current_xact_id()")
            await _ended(app, first)
        statuses = [(await _ended(app, first)).status_code for _ in range(4)]
        assert statuses[-1] == 429
