"""Administration: users, roles, sign-ins, caches, keys and Redis statistics. All of it requires Redis."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request

from ephemera.errors import ServerError
from ephemera.web import unavailable
from ephemera_services.identity.access import Access, Bearer
from ephemera_services.identity.account_routes import Before, log_page
from ephemera_services.identity.auth_routes import session_list
from ephemera_services.identity.forms import (
    NO_CONTROL,
    AccountList,
    AccountView,
    Ended,
    NewKey,
    RedisStats,
    RoleForm,
    SecurityLogView,
    SessionList,
)
from ephemera_services.identity.security_log import Origin
from ephemera_services.runtime import problem, problems

_NO_PERMISSION = (
    "This service's Redis user may not inspect its keys; create rules that allow it with: "
    "ephemera acl identity --for service --for monitoring"
)

router = APIRouter(prefix="/admin", tags=["admin"])

Admin = Annotated[Access, Depends(Bearer(admin=True))]


@router.get("/users", responses=problems(403))
async def users(
    admin: Admin,
    q: Annotated[
        str, Query(max_length=200, pattern=NO_CONTROL, description="Part of an address or a name")
    ] = "",
    role: Annotated[Literal["user", "admin"] | None, Query()] = None,
    blocked: bool | None = None,
    after: Annotated[str, Query(max_length=300, pattern=NO_CONTROL, description="`next` of a page")] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> AccountList:
    """The users by address, all or those that match."""
    found = await admin.service.directory.search(q, role=role, blocked=blocked, after=after, limit=limit)
    views = [AccountView.model_validate(row, from_attributes=True) for row in found]
    return AccountList(users=views, next=views[-1].email.lower() if len(views) == limit else None)


@router.get("/users/{user_id}", responses=problems(403, 404))
async def user(user_id: UUID, admin: Admin) -> AccountView:
    """A user's account."""
    return AccountView.model_validate(await admin.service.directory.account(user_id), from_attributes=True)


@router.delete("/users/{user_id}", status_code=204, responses=problems(403, 404, 409))
async def delete_user(user_id: UUID, admin: Admin) -> None:
    """Delete a user with everything that belongs to them, for good."""
    _refuse_oneself(user_id, admin)
    await admin.service.changes.delete(await admin.service.accounts.by_id(user_id), admin.user_id)


@router.put("/users/{user_id}/block", responses=problems(403, 404, 409))
async def block_user(user_id: UUID, admin: Admin, request: Request) -> Ended:
    """End all sign-ins of a user, and refuse new ones until they are unblocked. Idempotent."""
    _refuse_oneself(user_id, admin)
    ended = await admin.service.changes.block(user_id, admin.user_id, _origin(admin, request))
    return Ended(ended=ended)


@router.delete("/users/{user_id}/block", status_code=204, responses=problems(403, 404))
async def unblock_user(user_id: UUID, admin: Admin, request: Request) -> None:
    """Permit a user to sign in again. Idempotent."""
    await admin.service.changes.unblock(user_id, _origin(admin, request))


@router.get("/users/{user_id}/security-log", responses=problems(403, 404))
async def user_security_log(user_id: UUID, admin: Admin, before: Before = None) -> SecurityLogView:
    """What happened to a user's account in the last 90 days, with every sign-in; the newest first."""
    await admin.service.accounts.exists(user_id)
    return await log_page(admin, before, user_id)


@router.get("/users/{user_id}/sessions", responses=problems(403, 404))
async def user_sessions(user_id: UUID, admin: Admin) -> SessionList:
    """A user's sign-ins."""
    await admin.service.accounts.exists(user_id)
    return await session_list(admin.service, user_id, admin.claims.family)


@router.delete("/users/{user_id}/sessions", responses=problems(403, 404))
async def end_user_sessions(user_id: UUID, admin: Admin, request: Request) -> Ended:
    """End all sign-ins of a user: 401 at their next request, on every process."""
    return Ended(ended=await admin.service.changes.end_sign_ins(user_id, _origin(admin, request)))


@router.put("/users/{user_id}/role", responses=problems(403, 404, 409))
async def change_role(user_id: UUID, form: RoleForm, admin: Admin, request: Request) -> Ended:
    """Set a user's role, and end all their sign-ins, whose tokens carry the old one. Idempotent.

    409 for the last administrator who is not blocked.
    """
    changes, origin = admin.service.changes, _origin(admin, request)
    return Ended(ended=await changes.set_role(user_id, form.role, admin.user_id, origin))


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


def _origin(admin: Access, request: Request) -> Origin:
    return admin.service.gate.origin(request, by_admin=True)


def _refuse_oneself(user_id: UUID, admin: Access) -> None:
    if user_id == admin.user_id:
        raise problem(409, "You cannot do this to your own account: ask another administrator.")
