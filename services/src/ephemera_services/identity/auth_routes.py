"""Registration, sign-in, refresh, sign-out, and a user's own sign-ins."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from ephemera_services.identity.access import Access, Bearer
from ephemera_services.identity.forms import (
    Accepted,
    EndedSignIns,
    KeySet,
    RefreshForm,
    Registration,
    SessionList,
    SessionView,
    SignInForm,
    TokenPair,
)
from ephemera_services.identity.keys import ACCESS_TOKEN_LIFETIME
from ephemera_services.identity.password_policy import refuse_weak
from ephemera_services.identity.service import Identity
from ephemera_services.identity.sign_ins import Issued
from ephemera_services.runtime import NO_BACKEND, problem, problems, unauthorized

_WRONG = "Wrong address or password."
_UNCONFIRMED = "Wrong address or password, or the address is not confirmed yet: see the mail to it."

router = APIRouter(tags=["auth"])


async def identity(request: Request) -> Identity:
    """The running service."""
    found: Identity = request.app.state.service
    return found


Service = Annotated[Identity, Depends(identity)]
Caller = Annotated[Access, Depends(Bearer())]


@router.post("/auth/register", status_code=202, responses=problems(429))
async def register(form: Registration, service: Service, request: Request, response: Response) -> Accepted:
    """Create an account, unless the address has one: only a mail to the address says which."""
    response.raw_headers.extend(await service.gate.consume_registration(request.scope, form.email))
    password, profile = form.password.get_secret_value(), form.model_dump(exclude={"email", "password"})
    refuse_weak(password, form.email, form.first_name, form.last_name)
    stored = await service.passwords.hash(password)
    await service.accounts.register(form.email, stored, profile, origin=service.gate.origin(request))
    return Accepted()


@router.post("/auth/login", responses=problems(401, 403, 429))
async def login(form: SignInForm, service: Service, request: Request, response: Response) -> TokenPair:
    """Sign in: an access token, and a refresh token for the next one. 5 attempts per hour and address."""
    attempt, headers = await service.gate.consume_sign_in(request.scope, form.email)
    response.raw_headers.extend(headers)
    password, origin = form.password.get_secret_value(), service.gate.origin(request)
    found = await service.accounts.by_email(form.email)
    stored = None if found is None else found.password_hash
    matches = await service.passwords.verify(password, stored)
    unconfirmed = service.settings.require_verified_email and found and not found.email_verified_at
    if found is None or not matches or unconfirmed:
        if found is not None:
            service.log.record_later(found.id, "sign_in_refused", origin)
        raise unauthorized(_UNCONFIRMED if service.settings.require_verified_email else _WRONG, token=False)
    await service.gate.attempts.succeeded(attempt)
    if (fresh := await service.passwords.rehash(password, found.password_hash)) is not None:
        await service.accounts.change_hash(found.id, fresh, found.password_version)
    begun = await service.sign_ins.begin(found.id, origin, found.password_version)
    return _pair(begun, response)


@router.post("/auth/refresh", responses=problems(401, 403, 429))
async def refresh(form: RefreshForm, service: Service, request: Request, response: Response) -> TokenPair:
    """Exchange a refresh token for new tokens; using one twice ends its sign-in."""
    claims = service.sign_ins.verify(form.refresh_token.get_secret_value())
    response.raw_headers.extend(await service.gate.consume_refresh(request.scope, str(UUID(claims.family))))
    return _pair(await service.sign_ins.refresh(claims, service.gate.origin(request)), response)


@router.post("/auth/logout", status_code=204)
async def logout(caller: Caller, request: Request) -> None:
    """Sign out: the access token and all other tokens of its sign-in are revoked."""
    await caller.service.sign_ins.end_by(caller.claims, caller.service.gate.origin(request))


@router.get("/auth/sessions")
async def sessions(caller: Caller) -> SessionList:
    """The caller's sign-ins."""
    return await session_list(caller.service, caller.user_id, caller.claims.family)


@router.delete("/auth/sessions/{sid}", status_code=204, responses=problems(404))
async def end_session(sid: UUID, caller: Caller, request: Request) -> None:
    """End one of the caller's sign-ins: its tokens are refused at their next use."""
    origin = caller.service.gate.origin(request)
    if not await caller.service.sign_ins.end(caller.user_id, sid, "session_ended", origin):
        raise problem(404, "You have no such session.")


@router.get("/.well-known/jwks.json", openapi_extra=NO_BACKEND)
async def key_set(service: Service, response: Response) -> KeySet:
    """The public keys that verify this service's tokens, including the next one."""
    response.headers["cache-control"] = "public, max-age=60"
    return KeySet.model_validate(service.keys.ring.jwks())


@router.get("/.well-known/ended-sign-ins", responses=problems(429))
async def ended_sign_ins(
    service: Service,
    request: Request,
    response: Response,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
) -> EndedSignIns:
    """What was revoked within the lifetime of an access token, or since a cursor: digests of ids."""
    response.headers["cache-control"] = "no-store"
    if not service.ended.is_recent(after):
        response.raw_headers.extend(await service.gate.consume_revocation_list(request.scope))
    cursor, ended = await service.ended.after(after)
    return EndedSignIns(cursor=str(cursor), ended=ended)


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
