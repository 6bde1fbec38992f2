"""SEC23: sliding sessions and refresh tokens had no absolute end."""

from __future__ import annotations

import asyncio
import base64
import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from ephemera import Catalogue, connect, sliding
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.sessions import Sessions
from ephemera_services.league import DEMO_ADMINISTRATOR
from ephemera_services.runtime import DEMO_PASSWORD
from tests.defects.service_apps import opened, register, sign_in
from tests.security.guarded import catalogue_of
from tests.services.slides_users import ADMIN as SLIDES_ADMIN
from tests.services.slides_users import credentials

_LIFETIME = 600  # seconds


def _claims(token: str) -> Any:
    payload = token.split(".")[1]
    return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


class _Session(msgspec.Struct):
    user_id: str
    seen: int = 0


async def test_sec23_using_a_session_never_outlives_its_absolute_end(server: Valkey) -> None:
    """Reads, updates and a new token extend it until then, and not a moment longer."""
    catalogue = Catalogue("sec23")
    sessions = Sessions(
        catalogue, "sec23:{session_id}", _Session, user="user_id", lifetime=sliding(milliseconds=900),
        absolute_lifetime=timedelta(seconds=2), index="sec23_index:{user_id}",
    )  # fmt: skip
    async with connect(server.url, catalogue) as store:
        bound, began = store[sessions], time.time()
        token = await bound.create(_Session("u1"))
        while await bound.get(token) is not None:
            assert time.time() < began + 2.5, "it is still extended"
            await bound.update(token, seen=1)
            token = await bound.rotate(token) or token
            await asyncio.sleep(0.05)
        assert time.time() >= began + 0.9, "it was extended"
        assert await store.call("KEYS", "sec23*") in ([], [b"sec23_index:u1"])


@pytest.mark.parametrize("service", ["league", "slides"])
def test_sec23_sessions_of_services_have_an_absolute_end(service: str) -> None:
    """However often they are used."""
    (sessions,) = [each for each in catalogue_of(service).patterns if isinstance(each, Sessions)]
    assert sessions.absolute_lifetime == 30 * 86_400


async def test_sec23_refreshing_never_outlives_the_sign_in(server: Valkey, postgres: Postgres) -> None:
    """All tokens of a sign-in expire at its absolute end, even those of a refresh."""
    short = {"EPHEMERA_IDENTITY_SIGN_IN_LIFETIME": f"{_LIFETIME}s"}
    async with opened("identity", server, postgres, short) as app:
        began = time.time()
        first = (await sign_in(app, await register(app))).json()
        answer = await app.ask("POST", "/auth/refresh", json={"refresh_token": first["refresh_token"]})
        for tokens in (first, answer.json()):
            for kind in ("access_token", "refresh_token"):
                assert began + _LIFETIME - 1 <= _claims(tokens[kind])["exp"] <= began + _LIFETIME + 3


_SIGN_IN: dict[str, tuple[str, dict[str, str], str]] = {
    "league": ("/api/session", {"name": DEMO_ADMINISTRATOR, "password": DEMO_PASSWORD}, "/api/me"),
    "slides": ("/auth/login", credentials(SLIDES_ADMIN), "/auth/me"),
}


@pytest.mark.parametrize("service", _SIGN_IN)
async def test_sec23_a_session_that_is_used_all_the_time_ends(
    server: Valkey, postgres: Postgres, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a service with an absolute lifetime of three seconds, requests in a row are refused after these."""
    (sessions,) = [each for each in catalogue_of(service).patterns if isinstance(each, Sessions)]
    monkeypatch.setattr(sessions, "absolute_lifetime", 3)
    monkeypatch.setattr(sessions.keys, "_absolute", 3)  # tokens name their end
    path, form, me = _SIGN_IN[service]
    async with opened(service, server, postgres, {f"EPHEMERA_{service.upper()}_DEMO": "true"}) as app:
        began = time.monotonic()
        signed = await app.ask("POST", path, json=form)
        headers = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
        assert (await app.ask("GET", me, headers=headers)).status_code == 200
        while (await app.ask("GET", me, headers=headers)).status_code == 200:
            assert time.monotonic() < began + 10, "it does not end"
            await asyncio.sleep(0.05)
        assert time.monotonic() > began + 1.9
        assert (await app.ask("GET", me, headers=headers)).status_code == 401


async def test_sec23_a_sign_in_that_is_refreshed_all_the_time_ends(
    server: Valkey, postgres: Postgres
) -> None:
    """At identity with a sign-in of three seconds, the refresh after these is refused."""
    async with opened("identity", server, postgres, {"EPHEMERA_IDENTITY_SIGN_IN_LIFETIME": "3s"}) as app:
        tokens, began = (await sign_in(app, await register(app))).json(), time.monotonic()
        while True:
            answer = await app.ask("POST", "/auth/refresh", json={"refresh_token": tokens["refresh_token"]})
            if answer.status_code != 200:
                break
            tokens = answer.json()
            assert time.monotonic() < began + 15, "it does not end"
            await asyncio.sleep(0.2)
        assert answer.status_code == 401, answer.text
        assert time.monotonic() > began + 2
