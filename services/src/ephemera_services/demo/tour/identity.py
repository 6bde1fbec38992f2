"""Tour of identity: a revoked session is refused at the next request, and a refresh token works once."""

from __future__ import annotations

from typing import Any

from ephemera_services.demo.tour.guide import Guide, Step
from ephemera_services.demo.traffic.identity import bearer, new_member, sign_in
from ephemera_services.demo.visitors import Visitor


async def _revoked(guide: Guide) -> None:
    async with guide.visitor("identity") as visitor:
        phone = await new_member(visitor)
        laptop = await sign_in(visitor, phone["email"])
        guide.report("a user signs in on a phone and on a laptop, and reads the profile on both", "200, 200")
        for tokens in (phone, laptop):
            await _profile(visitor, tokens, 200)
        await visitor.expect(204, "DELETE", f"/auth/sessions/{phone['sid']}", headers=bearer(laptop))
        guide.report("the laptop ends the phone's session", 204)
        await _profile(visitor, phone, 401)
        guide.report("the phone reads the profile with its unexpired token", 401)
        await _profile(visitor, laptop, 200)
        guide.report("the laptop reads it", 200)


async def _reused(guide: Guide) -> None:
    async with guide.visitor("identity") as visitor:
        first = await new_member(visitor)
        stolen = {"refresh_token": first["refresh_token"]}
        second = await visitor.expect(200, "POST", "/auth/refresh", json=stolen)
        guide.report("a refresh token is used", "200, with new tokens")
        await visitor.expect(401, "POST", "/auth/refresh", json=stolen)
        guide.report("the same refresh token is used again, as by a thief", 401)
        await _profile(visitor, second, 401)
        guide.report("the whole session is revoked: its newest access token is refused as well", 401)


async def _profile(visitor: Visitor, tokens: dict[str, Any], status: int) -> None:
    path = f"/api/profiles/{tokens['user_id']}"
    await visitor.expect(status, "GET", path, headers=bearer(tokens))


STEPS = (
    Step("identity", "a revoked session is refused at its next request", _revoked),
    Step("identity", "reusing a refresh token revokes its session", _reused),
)
