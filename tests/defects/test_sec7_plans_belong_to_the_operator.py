"""SEC7: a tenant's administrator could set the tenant's own plan, with any limits."""

from __future__ import annotations

import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera_services.runtime import InvalidSettings
from tests.defects.service_apps import opened
from tests.defects.slides_accounts import set_plan, sign_in
from tests.services.slides_users import FREE, OPERATOR


async def test_sec7_only_the_operator_changes_a_plan(server: Valkey, postgres: Postgres) -> None:
    """An administrator's request changes nothing; the operator's token is required, and enough."""
    async with opened("slides", server, postgres) as app:
        ivan = await sign_in(app, FREE)
        form = {"plan": "enterprise", "requests_per_minute": 1_000_000}
        for kind in ("admin", "operator"):
            path = f"/{kind}/organizations/{ivan.account['organization_id']}/plan"
            assert (await ivan.ask("PUT", path, json=form)).status_code in (401, 404)
        wrong = {"authorization": "Bearer the-token-of-a-stranger"}
        assert (await app.ask("PUT", path, json=form, headers=wrong)).status_code == 401
        assert (await ivan.want(200, "GET", "/auth/me"))["plan_name"] == "free"
        found = await app.ask("GET", "/operator/organizations?name=studio", headers=OPERATOR)
        assert found.json()["organization_id"] == ivan.account["organization_id"]
        await set_plan(ivan, "team", requests_per_minute=77)
        limits = await ivan.want(200, "GET", "/auth/me")
        assert (limits["plan_name"], limits["requests_per_minute"]) == ("team", 77)


async def test_sec7_without_a_token_there_are_no_such_routes(server: Valkey, postgres: Postgres) -> None:
    """An empty setting opens nothing, and a token that could be guessed is refused at startup."""
    variable = "EPHEMERA_SLIDES_OPERATOR_TOKEN"
    async with opened("slides", server, postgres, {variable: ""}) as app:
        answer = await app.ask("GET", "/operator/organizations?name=studio", headers=OPERATOR)
        assert answer.status_code == 404
    with pytest.raises(InvalidSettings, match=variable):
        async with opened("slides", server, postgres, {variable: "short"}):
            pass
