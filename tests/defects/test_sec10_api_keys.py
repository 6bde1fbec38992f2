"""SEC10: keys multiplied a user's limit, never ended, and worked on plans without API access."""

from __future__ import annotations

import psycopg

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import App, opened
from tests.defects.slides_accounts import set_plan, sign_in
from tests.services.slides_users import ADMIN, EDITOR


async def _use(app: App, key: str) -> int:
    return (await app.ask("GET", "/auth/me", headers={"x-api-key": key})).status_code


async def test_sec10_all_keys_of_a_user_share_one_limit(server: Valkey, postgres: Postgres) -> None:
    """Ten keys give their user no more requests than one, and no user more than ten keys."""
    async with opened("slides", server, postgres) as app:
        anna = await sign_in(app, EDITOR)
        made = [await anna.want(201, "POST", "/api-keys", json={"name": f"{n}"}) for n in range(10)]
        refused = await anna.ask("POST", "/api-keys", json={"name": "one more"})
        assert refused.status_code == 409
        await set_plan(anna, "pro", requests_per_minute=20)  # 11 of them are used
        statuses = [await _use(app, key["key"]) for key in made for _ in range(3)]
        assert statuses.count(200) <= 2 * 20 - 11, "two windows at most"
        assert 429 in statuses


async def test_sec10_keys_are_listed_revoked_and_expire(server: Valkey, postgres: Postgres) -> None:
    """The owner sees them, and revokes one; a key works no longer after its end, and creates no other."""
    url = postgres.database("sec10_keys")
    async with opened("slides", server, postgres, {"EPHEMERA_DATABASE_URL": url}) as app:
        anna = await sign_in(app, EDITOR)
        one, two = [
            await anna.want(201, "POST", "/api-keys", json={"name": name, "days": 1}) for name in "ab"
        ]
        assert (
            await app.ask("POST", "/api-keys", json={"name": "c"}, headers={"x-api-key": one["key"]})
        ).status_code == 403
        listed = (await anna.want(200, "GET", "/api-keys"))["keys"]
        assert [key["name"] for key in listed] == ["a", "b"]
        assert one["key"] not in str(listed)
        assert await _use(app, one["key"]) == 200
        await anna.want(204, "DELETE", f"/api-keys/{one['api_key_id']}")
        assert (await anna.ask("DELETE", f"/api-keys/{one['api_key_id']}")).status_code == 404
        assert await _use(app, one["key"]) == 401
        assert await _use(app, two["key"]) == 200
        with psycopg.connect(url) as sql:
            sql.execute("UPDATE slides.api_keys SET expires_at = now()")
        assert await _use(app, two["key"]) == 401
        assert (await anna.want(200, "GET", "/api-keys"))["keys"] == []


async def test_sec10_a_revoked_key_leaves_nothing_behind(server: Valkey, postgres: Postgres) -> None:
    """Who steals an administrator's key makes no key, user or administrator that would outlive it."""
    async with opened("slides", server, postgres) as app:
        root, anna = await sign_in(app, ADMIN), await sign_in(app, EDITOR)
        key = {"x-api-key": (await root.want(201, "POST", "/api-keys", json={"name": "a"}))["key"]}
        assert (await app.ask("GET", "/admin/users", headers=key)).status_code == 200
        user = {"email": "new@company.example", "password": "correct horse battery", "role": "admin"}
        for method, path, form in (
            ("POST", "/api-keys", {"name": "b"}),
            ("POST", "/admin/users", user),
            ("PUT", f"/admin/users/{anna.account['user_id']}/role", {"role": "admin"}),
        ):
            answer = await app.ask(method, path, json=form, headers=key)
            assert answer.status_code == 403, (path, answer.text)
            assert "A key cannot" in answer.json()["detail"]
        await root.want(201, "POST", "/admin/users", json=user)


async def test_sec10_a_plan_without_api_access_refuses_keys(server: Valkey, postgres: Postgres) -> None:
    """Keys that a better plan allowed are refused from the next request on."""
    async with opened("slides", server, postgres) as app:
        anna = await sign_in(app, EDITOR)
        key = (await anna.want(201, "POST", "/api-keys", json={"name": "a"}))["key"]
        await set_plan(anna, "free")
        assert await _use(app, key) == 401
        assert (await anna.ask("POST", "/api-keys", json={"name": "b"})).status_code == 402
        await set_plan(anna, "pro")
        assert await _use(app, key) == 200
