"""Administration: roles, sign-ins, caches, keys and Redis statistics. All of it requires Redis."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends

from ephemera.errors import ServerError
from ephemera.web import unavailable
from ephemera_services.identity.access import Access, Bearer
from ephemera_services.identity.auth_routes import session_list
from ephemera_services.identity.forms import Ended, NewKey, RedisStats, RoleForm, SessionList
from ephemera_services.runtime import problems

_NO_PERMISSION = (
    "This service's Redis user may not inspect its keys; create rules that allow it with: "
    "ephemera acl identity --for service --for monitoring"
)

router = APIRouter(prefix="/admin", tags=["admin"])

Admin = Annotated[Access, Depends(Bearer(admin=True))]


@router.get("/users/{user_id}/sessions", responses=problems(403, 404))
async def user_sessions(user_id: UUID, admin: Admin) -> SessionList:
    """A user's sign-ins."""
    await admin.service.accounts.exists(user_id)
    return await session_list(admin.service, user_id, admin.claims.family)


@router.delete("/users/{user_id}/sessions", responses=problems(403, 404))
async def end_user_sessions(user_id: UUID, admin: Admin) -> Ended:
    """End all sign-ins of a user: 401 at their next request, on every process."""
    await admin.service.accounts.exists(user_id)
    return Ended(ended=await admin.service.sign_ins.end_all(user_id))


@router.put("/users/{user_id}/role", responses=problems(403, 404))
async def change_role(user_id: UUID, form: RoleForm, admin: Admin) -> Ended:
    """Set a user's role, and end all their sign-ins, whose tokens carry the old one. Idempotent."""
    await admin.service.accounts.set_role(user_id, form.role)
    return Ended(ended=await admin.service.sign_ins.end_all(user_id))


@router.delete("/cache/profiles/{user_id}", status_code=204, responses=problems(403))
async def invalidate_profile(user_id: UUID, admin: Admin) -> None:
    """Invalidate a profile in every cache."""
    await admin.service.accounts.invalidate_profile(str(user_id))


@router.post("/keys/rotate", status_code=201, responses=problems(403, 409))
async def rotate_keys(admin: Admin) -> NewKey:
    """Publish a new signing key. It signs once every process and verifier has had time to fetch it."""
    fresh = await admin.service.keys.rotate(admin.service.settings.key_ahead)
    return NewKey(kid=fresh.kid, signs_from=datetime.fromtimestamp(fresh.signs_from, UTC))


@router.get("/redis/stats", responses=problems(403))
async def redis_stats(admin: Admin) -> RedisStats:
    """What this service keeps in Redis, compared with the estimates of its design."""
    try:
        report = await admin.service.redis.report()
    except ServerError as refused:
        if refused.code != "NOPERM":
            raise
        raise unavailable(_NO_PERMISSION, retry_after=60) from None
    return RedisStats.model_validate(report)
