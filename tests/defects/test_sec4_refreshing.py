"""SEC4: refreshing had no limit, and each refresh left a key of seven days on the queue server."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import App, opened, register, sign_in

_LIMITS = {
    "EPHEMERA_IDENTITY_REFRESHES_PER_HOUR": "4",
    "EPHEMERA_IDENTITY_ADDRESS_REFRESHES_PER_HOUR": "6",
    "EPHEMERA_IDENTITY_WINDOWS": "sliding",  # no end of a window within the test
}


async def _refresh(app: App, tokens: dict[str, Any], address: str = "192.0.2.1") -> httpx.Response:
    """Refresh, and keep the new tokens if there are any."""
    body = {"refresh_token": tokens["refresh_token"]}
    answer = await app.ask("POST", "/auth/refresh", json=body, address=address)
    if answer.status_code == 200:
        tokens.update(answer.json())
    return answer


@pytest.mark.standalone("it counts the keys of one server")
async def test_sec4_refreshing_is_limited(server: Valkey, postgres: Postgres) -> None:
    """By sign-in and by address: 429 adds no key for the token, which stays valid."""
    async with opened("identity", server, postgres, _LIMITS) as app:
        email = await register(app)
        phone, laptop = (await sign_in(app, email)).json(), (await sign_in(app, email)).json()
        of_one = [(await _refresh(app, phone, f"198.51.100.{n}")).status_code for n in range(4)]
        refused = await _refresh(app, phone, "198.51.100.9")
        assert (of_one, refused.status_code) == ([200] * 4, 429)
        assert refused.json()["violated-policies"] == ["refresh"]
        assert 0 < int(refused.headers["retry-after"]) <= 3600
        used = len(server.ask("KEYS", "blacklist:refresh:*"))  # type: ignore[arg-type]
        assert used == 4
        assert [(await _refresh(app, phone)).status_code for _ in range(20)] == [429] * 20
        assert len(server.ask("KEYS", "blacklist:refresh:*")) == used  # type: ignore[arg-type]
        assert [(await _refresh(app, laptop, "198.51.100.1")).status_code for _ in range(4)] == [200] * 4
        tablet = (await sign_in(app, email)).json()
        assert [(await _refresh(app, tablet, "198.51.100.1")).status_code for _ in range(2)] == [200, 429]
        assert (await _refresh(app, tablet, "198.51.100.2")).status_code == 200, "the token was not used up"


async def test_sec4_made_up_refresh_tokens_use_up_no_limit(server: Valkey, postgres: Postgres) -> None:
    """Only a token that identity signed counts, so a neighbour at the same address is not locked out."""
    async with opened("identity", server, postgres, _LIMITS) as app:
        tokens = (await sign_in(app, await register(app))).json()
        for made_up in ("x", tokens["access_token"], tokens["refresh_token"][:-8] + "AAAAAAAA"):
            for _ in range(4):
                assert (await _refresh(app, {"refresh_token": made_up})).status_code == 401
        assert (await _refresh(app, tokens)).status_code == 200
