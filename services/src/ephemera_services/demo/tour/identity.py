"""Tour of identity: a revoked session is refused at the next request, and a refresh token works once."""

from __future__ import annotations

from typing import Any

from ephemera_services.demo.clients import DemoClient
from ephemera_services.demo.tour.steps import Step, StepContext
from ephemera_services.demo.traffic.identity import bearer, new_member, sign_in


async def _revoked(context: StepContext) -> None:
    async with context.client("identity") as client:
        phone = await new_member(client)
        laptop = await sign_in(client, phone["email"])
        context.report("a user signs in on a phone and a laptop, and reads the profile on both", "200, 200")
        for tokens in (phone, laptop):
            await _profile(client, tokens, 200)
        await client.expect(204, "DELETE", f"/auth/sessions/{phone['sid']}", headers=bearer(laptop))
        context.report("the laptop ends the phone's session", 204)
        await _profile(client, phone, 401)
        context.report("the phone reads the profile with its unexpired token", 401)
        await _profile(client, laptop, 200)
        context.report("the laptop reads it", 200)


async def _reused(context: StepContext) -> None:
    async with context.client("identity") as client:
        first = await new_member(client)
        stolen = {"refresh_token": first["refresh_token"]}
        second = await client.expect(200, "POST", "/auth/refresh", json=stolen)
        context.report("a refresh token is used", "200, with new tokens")
        await client.expect(401, "POST", "/auth/refresh", json=stolen)
        context.report("the same refresh token is used again, as by a thief", 401)
        await _profile(client, second, 401)
        context.report("the whole session is revoked: its newest access token is refused as well", 401)


async def _profile(client: DemoClient, tokens: dict[str, Any], status: int) -> None:
    path = f"/api/profiles/{tokens['user_id']}"
    await client.expect(status, "GET", path, headers=bearer(tokens))


STEPS = (
    Step("identity", "a revoked session is refused at its next request", _revoked),
    Step("identity", "reusing a refresh token revokes its session", _reused),
)
