"""Registration, sign-in, refresh, sign-out, and a user's own sign-ins."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response

from ephemera_services.identity.access import Access, Bearer
from ephemera_services.identity.forms import (
    Credentials,
    KeySet,
    RefreshForm,
    Registered,
    Registration,
    SessionList,
    SessionView,
    TokenPair,
)
from ephemera_services.identity.keys import ACCESS_TOKEN_LIFETIME
from ephemera_services.identity.service import Identity
from ephemera_services.identity.sign_ins import Issued
from ephemera_services.runtime import NO_BACKEND, problem, problems, unauthorized

router = APIRouter(tags=["auth"])


async def identity(request: Request) -> Identity:
    """The running service."""
    found: Identity = request.app.state.service
    return found


Service = Annotated[Identity, Depends(identity)]
Caller = Annotated[Access, Depends(Bearer())]


@router.post("/auth/register", status_code=201, responses=problems(409))
async def register(form: Registration, service: Service) -> Registered:
    """Create an account."""
    stored = await service.passwords.hash(form.password.get_secret_value())
    profile = form.model_dump(exclude={"email", "password"})
    return Registered(user_id=await service.accounts.register(form.email, stored, **profile))


@router.post("/auth/login", responses=problems(401, 429))
async def login(form: Credentials, service: Service, request: Request, response: Response) -> TokenPair:
    """Sign in: an access token, and a refresh token for the next one. 5 attempts per hour and address."""
    response.raw_headers.extend(await service.gate.consume_by_address("login", request.scope))
    password = form.password.get_secret_value()
    found = await service.accounts.by_email(form.email)
    stored = None if found is None else found.password_hash
    if not await service.passwords.verify(password, stored) or found is None:
        raise unauthorized("Wrong address or password.", token=False)
    if service.passwords.is_outdated(found.password_hash):
        await service.accounts.change_hash(found.id, await service.passwords.hash(password))
    return _pair(await service.sign_ins.begin(found.id, service.gate.origin(request)), response)


@router.post("/auth/refresh", responses=problems(401))
async def refresh(form: RefreshForm, service: Service, request: Request, response: Response) -> TokenPair:
    """Exchange a refresh token for new tokens; using one twice ends its sign-in."""
    token = form.refresh_token.get_secret_value()
    return _pair(await service.sign_ins.refresh(token, service.gate.origin(request)), response)


@router.post("/auth/logout", status_code=204)
async def logout(caller: Caller) -> None:
    """Sign out: the access token and all other tokens of its sign-in are revoked."""
    await caller.service.sign_ins.end_by(caller.claims)


@router.get("/auth/sessions")
async def sessions(caller: Caller) -> SessionList:
    """The caller's sign-ins."""
    return await session_list(caller.service, UUID(caller.claims.sub), caller.claims.family)


@router.delete("/auth/sessions/{sid}", status_code=204, responses=problems(404))
async def end_session(sid: UUID, caller: Caller) -> None:
    """End one of the caller's sign-ins: its tokens are refused at their next use."""
    if not await caller.service.sign_ins.end(UUID(caller.claims.sub), sid):
        raise problem(404, "You have no such session.")


@router.get("/.well-known/jwks.json", openapi_extra=NO_BACKEND)
async def key_set(service: Service, response: Response) -> KeySet:
    """The public keys that verify this service's tokens, including the next one."""
    response.headers["cache-control"] = "public, max-age=60"
    return KeySet.model_validate(service.keys.ring.jwks())


async def session_list(service: Identity, user_id: UUID, current: str | None) -> SessionList:
    """A user's sign-ins, as a response."""
    found = await service.sign_ins.of_user(user_id)
    return SessionList(
        sessions=[
            SessionView(
                sid=row.id,
                created_at=row.created_at,
                refreshed_at=row.refreshed_at,
                expires_at=row.expires_at,
                ip_address=row.ip_address,
                user_agent=row.user_agent,
                in_use=in_use,
                current=str(row.id) == current,
            )
            for row, in_use in found
        ]
    )


def _pair(issued: Issued, response: Response) -> TokenPair:
    response.headers["cache-control"] = "no-store"
    return TokenPair(**issued._asdict(), expires_in=int(ACCESS_TOKEN_LIFETIME.total_seconds()))
