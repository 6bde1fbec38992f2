"""Signing in and out, API keys, and administration."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from msgspec.structs import asdict

from ephemera.web import RequestSession
from ephemera.web.fastapi import request_session
from ephemera_services.runtime import problem, problems
from ephemera_services.slides.access import API_ACCESS, Caller, RequireRole
from ephemera_services.slides.forms import (
    AccountView,
    BlockForm,
    CreatedUser,
    KeyForm,
    KeyList,
    KeyView,
    NewKey,
    NewUser,
    PasswordForm,
    RoleForm,
    SessionsEnded,
    SignInForm,
    SignInResponse,
    UserList,
    UserView,
)
from ephemera_services.slides.keys import CachedSession
from ephemera_services.slides.service import Slides

router = APIRouter(tags=["accounts"])

Handle = Annotated[RequestSession[CachedSession], Depends(request_session)]
Reader = Annotated[Caller, Depends(RequireRole("viewer"))]
Editor = Annotated[Caller, Depends(RequireRole("editor"))]
Admin = Annotated[Caller, Depends(RequireRole("admin"))]


@router.post("/auth/login", responses=problems(401, 403, 409, 429))
async def login(form: SignInForm, request: Request, response: Response, handle: Handle) -> SignInResponse:
    """Sign in: the response sets the session cookie."""
    service: Slides = request.app.state.service
    response.raw_headers.extend(await service.gate.consume_login(request.scope))
    attempt = await service.gate.begin_sign_in(f"{form.organization}\n{form.email}", request.scope)
    account = await service.accounts.sign_in(form, service.gate.address(request.scope), handle)
    if account is None:
        detail = "Wrong organization, address or password."
        raise problem(401, detail, headers=[(b"www-authenticate", b"Cookie")])
    await service.gate.sign_in_succeeded(attempt)
    return SignInResponse(
        user_id=account.id,
        organization_id=account.organization_id,
        email=account.email,
        role=account.role,
        plan=account.plan,
    )


@router.post("/auth/logout", status_code=204)
async def logout(handle: Handle) -> None:
    """Sign out: end the session, if there is one."""
    await handle.end()


@router.get("/auth/me", responses=problems(429))
async def me(caller: Reader) -> AccountView:
    """The caller's role, and the limits of their organization."""
    who = {name: getattr(caller, name) for name in ("user_id", "organization_id", "role")}
    return AccountView(**who, **asdict(caller.limits))


@router.put("/auth/password", responses=problems(403, 404, 409, 429))
async def change_password(
    form: PasswordForm, caller: Reader, request: Request, handle: Handle
) -> SessionsEnded:
    """Change the caller's own password: all their sessions end, and this browser gets a new one."""
    _refuse_key(caller, "change the password of its owner")
    service = caller.service
    organization, email, stored = await service.accounts.credentials(caller.user_id)
    attempt = await service.gate.begin_sign_in(f"{organization}\n{email}", request.scope)
    if not await service.passwords.verify(form.current_password.get_secret_value(), stored):
        raise problem(403, "This is not your password.")
    await service.gate.sign_in_succeeded(attempt)
    address, password = service.gate.address(request.scope), form.new_password.get_secret_value()
    ended = await service.accounts.change_password(caller.user_id, password, address, handle)
    return SessionsEnded(sessions_ended=ended)


@router.post("/api-keys", status_code=201, responses=problems(402, 403, 409, 429))
async def make_key(form: KeyForm, caller: Editor) -> NewKey:
    """Create an API key with its owner's role. It is shown only once: only its digest is stored."""
    _refuse_key(caller, "create keys, which would outlive its revocation")
    if API_ACCESS not in caller.limits.features:
        raise problem(402, f"The plan {caller.limits.plan_name} does not include API keys.")
    limit = caller.service.settings.keys_per_user
    made = await caller.service.api_keys.create(caller.user_id, form.name, timedelta(days=form.days), limit)
    return NewKey(api_key_id=made.id, key=made.key, expires_at=made.expires_at)


@router.get("/api-keys", responses=problems(429))
async def list_keys(caller: Reader) -> KeyList:
    """The caller's API keys that have not expired."""
    rows = await caller.service.api_keys.list(caller.user_id)
    return KeyList(keys=[KeyView(api_key_id=row.id, **row._asdict()) for row in rows])


@router.delete("/api-keys/{api_key_id}", status_code=204, responses=problems(404, 429))
async def revoke_key(api_key_id: UUID, caller: Reader) -> None:
    """Revoke one of the caller's API keys; its next request is refused."""
    await caller.service.api_keys.revoke(caller.user_id, api_key_id)


@router.post("/admin/users", status_code=201, responses=problems(403, 409, 429))
async def add_user(form: NewUser, caller: Admin) -> CreatedUser:
    """Create a user in the administrator's organization."""
    _refuse_key(caller, "create users, who would outlive its revocation")
    password = form.password.get_secret_value()
    user_id = await caller.service.accounts.add(caller.organization_id, form.email, password, form.role)
    return CreatedUser(user_id=user_id)


@router.get("/admin/users", responses=problems(403, 429))
async def list_users(caller: Admin) -> UserList:
    """The users of the administrator's organization."""
    rows = await caller.service.accounts.list(caller.organization_id)
    return UserList(users=[UserView(user_id=row.id, **row._asdict()) for row in rows])


@router.delete("/admin/users/{user_id}", status_code=204, responses=problems(403, 404, 409, 429))
async def delete_user(user_id: UUID, caller: Admin) -> None:
    """Delete a user and end their sessions and keys; their documents and presentations become yours."""
    await caller.service.accounts.delete(user_id, caller.organization_id, caller.user_id)


@router.put("/admin/users/{user_id}/role", responses=problems(403, 404, 409, 429))
async def change_role(user_id: UUID, form: RoleForm, caller: Admin) -> SessionsEnded:
    """Set a user's role, and end all their sessions. 409 for the last administrator."""
    _refuse_key(caller, "change roles, which would outlive its revocation")
    ended = await caller.service.accounts.change(user_id, caller.organization_id, role=form.role)
    return SessionsEnded(sessions_ended=ended)


@router.put("/admin/users/{user_id}/blocked", responses=problems(403, 404, 409, 429))
async def block(user_id: UUID, form: BlockForm, caller: Admin) -> SessionsEnded:
    """Block or unblock a user; either way their sessions end. 409 for the last administrator."""
    ended = await caller.service.accounts.change(user_id, caller.organization_id, blocked=form.blocked)
    return SessionsEnded(sessions_ended=ended)


def _refuse_key(caller: Caller, action: str) -> None:
    """Raise 403 for a request with an API key: who has a stolen one must have nothing when it is revoked."""
    if caller.key_id is not None:
        raise problem(403, f"A key cannot {action}; sign in.")
