"""SEC5: an administrator demoted at identity kept full rights at scripture."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from ephemera.embedded import Postgres, Valkey
from ephemera.operations.configuration import mark_server
from tests.defects.service_apps import ADMIN, App, opened, register, sign_in

pytestmark = pytest.mark.standalone("each service has a database of its own")

_PLENTY = {"EPHEMERA_IDENTITY_LOGINS_PER_HOUR": "1000000"}
_SHORT_GRACE = {"EPHEMERA_SCRIPTURE_REVOCATIONS_GRACE": "1s"}


@asynccontextmanager
async def _listening(identity: App) -> AsyncIterator[tuple[str, uvicorn.Server]]:
    """Identity over the network; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(identity.app, lifespan="off", log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def _both(server: Valkey, postgres: Postgres, **more: str) -> AsyncIterator[tuple[App, App, Any]]:
    async with opened("identity", server, postgres, _PLENTY) as identity, _listening(identity) as (url, web):
        place = {"EPHEMERA_URL": f"{server.url}/1", "EPHEMERA_SCRIPTURE_JWKS": f"{url}/.well-known/jwks.json"}
        await mark_server(place["EPHEMERA_URL"], "scripture")
        variables = {**place, "EPHEMERA_SCRIPTURE_ACCOUNT_PER_MINUTE": "1000", **more}
        async with opened("scripture", server, postgres, variables, empty=False) as scripture:
            yield identity, scripture, web


def _bearer(answer: httpx.Response) -> dict[str, str]:
    return {"authorization": f"Bearer {answer.json()['access_token']}"}


async def _administer(scripture: App, who: dict[str, str]) -> int:
    path = "/plans/free/features/words"
    return (await scripture.ask("PUT", path, json={"allowed": True}, headers=who)).status_code


async def _read(scripture: App, who: dict[str, str]) -> int:
    return (await scripture.ask("GET", "/me/preferences", headers=who)).status_code


async def _within_a_second(status: int, ask: Any) -> None:
    began = time.monotonic()
    while (given := await ask()) != status:
        assert time.monotonic() - began < 1, f"it still answers {given}"
        await asyncio.sleep(0.02)


async def test_sec5_a_demotion_at_identity_holds_at_scripture(server: Valkey, postgres: Postgres) -> None:
    """Within a second the demoted administrator's token is refused, and only theirs."""
    async with _both(server, postgres) as (identity, scripture, _):
        root = _bearer(await sign_in(identity, ADMIN["email"], ADMIN["password"]))
        second = await register(identity)
        user_id = (await sign_in(identity, second)).json()["user_id"]
        role = f"/admin/users/{user_id}/role"
        assert (await identity.ask("PUT", role, json={"role": "admin"}, headers=root)).status_code == 200
        admin = _bearer(await sign_in(identity, second))
        assert await _administer(scripture, admin) == 200
        assert (await identity.ask("PUT", role, json={"role": "user"}, headers=root)).status_code == 200
        await _within_a_second(401, lambda: _administer(scripture, admin))
        assert await _administer(scripture, root) == 200
        demoted = _bearer(await sign_in(identity, second))
        assert await _administer(scripture, demoted) == 403
        assert await _read(scripture, demoted) == 200


async def test_sec5_a_sign_out_at_identity_holds_at_scripture(server: Valkey, postgres: Postgres) -> None:
    """A signed-out user's token is refused within a second; another sign-in of theirs is not."""
    async with _both(server, postgres) as (identity, scripture, _):
        email = await register(identity)
        phone, laptop = _bearer(await sign_in(identity, email)), _bearer(await sign_in(identity, email))
        assert (await _read(scripture, phone), await _read(scripture, laptop)) == (200, 200)
        assert (await identity.ask("POST", "/auth/logout", headers=phone)).status_code == 204
        await _within_a_second(401, lambda: _read(scripture, phone))
        assert await _read(scripture, laptop) == 200


async def test_sec5_a_token_that_is_revoked_alone_is_refused_at_scripture(
    server: Valkey, postgres: Postgres
) -> None:
    """Within a second; its sign-in stays active, even at scripture. Revoking it again changes nothing."""
    async with _both(server, postgres) as (identity, scripture, _):
        signed_in = await sign_in(identity, await register(identity))
        first, refresh_token = _bearer(signed_in), signed_in.json()["refresh_token"]
        assert await _read(scripture, first) == 200
        for _ in range(2):
            form = {"token": signed_in.json()["access_token"]}
            assert (await identity.ask("POST", "/auth/revoke", data=form)).status_code == 200
        await _within_a_second(401, lambda: _read(scripture, first))
        answer = await identity.ask("POST", "/auth/refresh", json={"refresh_token": refresh_token})
        assert await _read(scripture, _bearer(answer)) == 200


async def test_sec5_without_identity_tokens_are_refused(server: Valkey, postgres: Postgres) -> None:
    """Administrators a second after the last list, users after their grace; who sends no token is served."""
    async with _both(server, postgres, **_SHORT_GRACE) as (identity, scripture, web):
        root = _bearer(await sign_in(identity, ADMIN["email"], ADMIN["password"]))
        ann = _bearer(await sign_in(identity, await register(identity)))
        assert (await _administer(scripture, root), await _read(scripture, ann)) == (200, 200)
        web.should_exit = True
        await asyncio.sleep(1.2)
        assert (await _administer(scripture, root), await _read(scripture, ann)) == (503, 503)
        assert (await scripture.ask("GET", "/passages/john.3.16")).status_code == 200


async def test_sec5_the_list_misses_no_transaction_that_commits_late(
    server: Valkey, postgres: Postgres
) -> None:
    """A sign-in that a slow transaction ended comes after a later one's; it is in the next list."""
    async with opened("identity", server, postgres, _PLENTY) as identity:
        feed, engine = identity.service.ended, identity.service.engine
        tokens = [(await sign_in(identity, await register(identity))).json() for _ in range(2)]
        slow, quick = (each["sid"] for each in tokens)
        end = (
            "UPDATE identity.sign_ins SET ended_at = now(), ended_by = pg_current_xact_id()::text::bigint"
            " WHERE id = '{}'"
        )
        async with engine.connect() as late:
            await late.exec_driver_sql(end.format(slow))
            async with engine.begin() as soon:
                await soon.exec_driver_sql(end.format(quick))
            cursor, first = await feed.after(0)
            await late.commit()
        await asyncio.sleep(0.11)  # the list is read again
        _, second = await feed.after(cursor)
        assert len(first) == 1
        assert len(set(second) - set(first)) == 1
        assert set((await feed.after(0))[1]) >= {*first, *second}
