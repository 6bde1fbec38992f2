"""Signing in and out, API keys, and administration."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response

from ephemera.web import RequestSession
from ephemera.web.fastapi import request_session
from ephemera_services.runtime import problem, problems
from ephemera_services.slides.access import Caller, RequireRole
from ephemera_services.slides.forms import (
    BlockForm,
    CreatedUser,
    Credentials,
    KeyForm,
    LimitsView,
    NewKey,
    NewUser,
    PlanForm,
    RoleForm,
    SessionsEnded,
    SignInResponse,
)
from ephemera_services.slides.keys import CachedSession
from ephemera_services.slides.service import Slides

router = APIRouter(tags=["accounts"])

Handle = Annotated[RequestSession[CachedSession], Depends(request_session)]
Reader = Annotated[Caller, Depends(RequireRole("viewer"))]
Editor = Annotated[Caller, Depends(RequireRole("editor"))]
Admin = Annotated[Caller, Depends(RequireRole("admin"))]


@router.post("/auth/login", responses=problems(401, 403, 409, 429))
async def login(form: Credentials, request: Request, response: Response, handle: Handle) -> SignInResponse:
    """Sign in: the response sets the session cookie."""
    service: Slides = request.app.state.service
    response.raw_headers.extend(await service.gate.consume_login(request.scope))
    password, ip = form.password.get_secret_value(), service.gate.address(request.scope)
    account = await service.accounts.sign_in(form.email, password, ip, handle)
    if account is None:
        raise problem(401, "Wrong address or password.", headers=[(b"www-authenticate", b"Cookie")])
    return SignInResponse(
        user_id=account.id,
        organization_id=account.organization_id,
        email=account.email,
        role=account.role,  # type: ignore[arg-type] # SQL checks it
        plan=account.plan,
    )


@router.post("/auth/logout", status_code=204)
async def logout(handle: Handle) -> None:
    """Sign out: end the session, if there is one."""
    await handle.end()


@router.get("/auth/me", responses=problems(429))
async def me(caller: Reader) -> LimitsView:
    """The limits of the caller's organization."""
    return LimitsView.model_validate(caller.limits)


@router.post("/api-keys", status_code=201, responses=problems(402, 403, 429))
async def make_key(form: KeyForm, caller: Editor) -> NewKey:
    """Create an API key with its owner's role. It is shown only once: only its digest is stored."""
    if "api_access" not in caller.limits.features:
        raise problem(402, f"The plan {caller.limits.plan_name} does not include API keys.")
    key_id, key = await caller.service.accounts.make_key(caller.user_id, form.name)
    return NewKey(api_key_id=key_id, key=key)


@router.post("/admin/users", status_code=201, responses=problems(403, 409, 429))
async def add_user(form: NewUser, caller: Admin) -> CreatedUser:
    """Create a user in the administrator's organization."""
    password = form.password.get_secret_value()
    user_id = await caller.service.accounts.add(caller.organization_id, form.email, password, form.role)
    return CreatedUser(user_id=user_id)


@router.put("/admin/users/{user_id}/role", responses=problems(403, 404, 429))
async def change_role(user_id: UUID, form: RoleForm, caller: Admin) -> SessionsEnded:
    """Set a user's role, and end all their sessions, which have the old one. Idempotent."""
    ended = await caller.service.accounts.change(user_id, caller.organization_id, role=form.role)
    return SessionsEnded(sessions_ended=ended)


@router.put("/admin/users/{user_id}/blocked", responses=problems(403, 404, 429))
async def block(user_id: UUID, form: BlockForm, caller: Admin) -> SessionsEnded:
    """Block or unblock a user; either way their sessions end."""
    ended = await caller.service.accounts.change(user_id, caller.organization_id, blocked=form.blocked)
    return SessionsEnded(sessions_ended=ended)


@router.put("/admin/organizations/{organization_id}/plan", responses=problems(403, 404, 429))
async def change_plan(organization_id: UUID, form: PlanForm, caller: Admin) -> LimitsView:
    """Set the organization's plan; its limits apply from the next request on."""
    caller.require_organization(organization_id)
    plans = caller.service.plans
    await plans.change(organization_id, form.plan, form.requests_per_minute)
    return LimitsView.model_validate(await plans.limits(str(organization_id)))
