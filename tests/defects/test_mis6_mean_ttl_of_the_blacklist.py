"""MIS6: the mean TTL of the blacklist was judged against a day, so normal use was "above" the estimate."""

from __future__ import annotations

from typing import Any

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import ADMIN, App, opened, register, sign_in

_DAY = 24 * 3600


async def _categories(app: App) -> dict[str, Any]:
    root = (await sign_in(app, ADMIN["email"], ADMIN["password"])).json()
    bearer = {"authorization": f"Bearer {root['access_token']}"}
    stats = (await app.ask("GET", "/admin/redis/stats", headers=bearer)).json()
    return {each["category"]: each for each in stats["categories"]}


async def test_mis6_sign_outs_are_within_the_estimate(server: Valkey, postgres: Postgres) -> None:
    """After ordinary sign-outs, which list refresh tokens for 7 days, no mean TTL is above its estimate."""
    plenty = {"EPHEMERA_IDENTITY_LOGINS_PER_HOUR": "1000"}
    async with opened("identity", server, postgres, plenty) as app:
        email = await register(app)
        for _ in range(5):
            tokens = (await sign_in(app, email)).json()
            bearer = {"authorization": f"Bearer {tokens['access_token']}"}
            assert (await app.ask("POST", "/auth/logout", headers=bearer)).status_code == 204
        found = await _categories(app)
    assert found["blacklist"]["mean_ttl_seconds"]["value"] > _DAY, "what made it 'above'"
    verdicts = {name: each["mean_ttl_seconds"]["verdict"] for name, each in found.items() if name != "total"}
    assert set(verdicts.values()) <= {"within", "unknown"}, verdicts


async def test_mis6_a_mark_that_stays_too_long_is_noticed(server: Valkey, postgres: Postgres) -> None:
    """Marks that outlive every token they could revoke are above the estimate."""
    async with opened("identity", server, postgres) as app:
        for number in range(50):
            server.ask("SET", f"blacklist:refresh:{number:032x}", "", "EX", str(30 * _DAY))
        assert (await _categories(app))["blacklist"]["mean_ttl_seconds"]["verdict"] == "above"
