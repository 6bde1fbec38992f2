"""MIS5: refreshing after an ordinary sign-out was reported as a stolen refresh token."""

from __future__ import annotations

import httpx
import pytest

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import App, opened, register, sign_in


async def _refresh(app: App, token: str) -> httpx.Response:
    return await app.ask("POST", "/auth/refresh", json={"refresh_token": token})


@pytest.mark.parametrize("redis_lost", [False, True])
async def test_mis5_a_refresh_after_a_sign_out_is_not_reuse(
    redis_lost: bool, server: Valkey, postgres: Postgres
) -> None:
    """Its last refresh token is refused because the sign-in has ended, whether Redis knows it or only SQL."""
    async with opened("identity", server, postgres) as app:
        tokens = (await sign_in(app, await register(app))).json()
        bearer = {"authorization": f"Bearer {tokens['access_token']}"}
        assert (await app.ask("POST", "/auth/logout", headers=bearer)).status_code == 204
        if redis_lost:
            server.ask("FLUSHALL")
        answer = await _refresh(app, tokens["refresh_token"])
        assert answer.status_code == 401
        assert answer.json()["detail"] == "This sign-in has ended: sign in again."


async def test_mis5_a_replaced_token_still_is(server: Valkey, postgres: Postgres) -> None:
    """A refresh token that was exchanged for another one is reuse, even after the sign-in has ended."""
    async with opened("identity", server, postgres) as app:
        tokens = (await sign_in(app, await register(app))).json()
        replaced = tokens["refresh_token"]
        fresh = (await _refresh(app, replaced)).json()
        for _ in range(2):
            answer = await _refresh(app, replaced)
            assert answer.status_code == 401
            assert "used before" in answer.json()["detail"]
        assert "has ended" in (await _refresh(app, fresh["refresh_token"])).json()["detail"]
