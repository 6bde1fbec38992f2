"""A user's own account: password, address, security log, export and deletion.

What could take an account over requires the password once more, within the limits of a sign-in.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import StreamingResponse

from ephemera_services.identity.access import Access, Bearer
from ephemera_services.identity.auth_routes import Caller, Service
from ephemera_services.identity.export import export
from ephemera_services.identity.forms import (
    Accepted,
    AccountView,
    CodeForm,
    EmailChange,
    EmailForm,
    Ended,
    PasswordChange,
    PasswordForm,
    PasswordReset,
    SecurityEventView,
    SecurityLogView,
)
from ephemera_services.identity.password_policy import refuse_weak
from ephemera_services.runtime import problem, problems

router = APIRouter(prefix="/auth", tags=["account"])

_PAGE_SIZE = 50
Before = Annotated[int | None, Query(ge=1, lt=2**63, description="`next` of the page before")]


@router.get("/account", responses=problems(404))
async def account(caller: Caller) -> AccountView:
    """The caller's account."""
    return AccountView.model_validate(
        await caller.service.directory.account(caller.user_id), from_attributes=True
    )


@router.post("/password", responses=problems(403, 404, 429))
async def change_password(form: PasswordChange, caller: Caller, request: Request) -> Ended:
    """Change the password; all other sign-ins end."""
    service, fresh = caller.service, form.new_password.get_secret_value()
    user = await service.gate.reauthenticate(caller, request.scope, form.current_password.get_secret_value())
    refuse_weak(fresh, user.email, field="new_password")
    stored = await service.passwords.hash(fresh)
    ended = await service.changes.change_password(user, stored, service.gate.origin(request), caller.sign_in)
    return Ended(ended=ended)


@router.post("/password/forgotten", status_code=202, responses=problems(429))
async def forgotten(form: EmailForm, service: Service, request: Request, response: Response) -> Accepted:
    """Send a code to reset the password, if the address has an account; the response does not reveal it."""
    response.raw_headers.extend(await service.gate.consume_mail(request.scope, form.email))
    await service.mailer.request_now("reset", form.email)
    return Accepted()


@router.post("/password/reset", responses=problems(404, 429))
async def reset_password(form: PasswordReset, service: Service, request: Request) -> Ended:
    """Choose a new password with a code from a mail; all sign-ins end."""
    await service.gate.consume_confirmation(request.scope)
    code, fresh = form.code.get_secret_value(), form.new_password.get_secret_value()
    user = await service.changes.code_owner(code, "reset")
    refuse_weak(fresh, user.email, user.first_name, user.last_name, field="new_password")
    stored = await service.passwords.hash(fresh)
    ended = await service.changes.reset_password(user, code, stored, service.gate.origin(request))
    return Ended(ended=ended)


@router.post("/email/verification", status_code=202, responses=problems(429))
async def send_verification(
    form: EmailForm, service: Service, request: Request, response: Response
) -> Accepted:
    """Send another code to confirm an address, if it is that of an account and not confirmed."""
    response.raw_headers.extend(await service.gate.consume_mail(request.scope, form.email))
    await service.mailer.request_now("verify", form.email)
    return Accepted()


@router.post("/email/confirm", status_code=204, responses=problems(409, 429))
async def confirm_email(form: CodeForm, service: Service, request: Request) -> None:
    """Confirm an address, or a change of it, with a code from a mail."""
    await service.gate.consume_confirmation(request.scope)
    code = form.code.get_secret_value()
    user = await service.changes.code_owner(code, "verify", "change")
    await service.changes.confirm_email(user, code, service.gate.origin(request))


@router.put("/email", status_code=202, responses=problems(403, 404, 429))
async def change_email(form: EmailChange, caller: Caller, request: Request) -> Accepted:
    """Send a code to another address, which becomes the account's when it is confirmed."""
    service = caller.service
    await service.gate.reauthenticate(caller, request.scope, form.password.get_secret_value())
    await service.gate.consume_mail(request.scope, form.email)
    await service.changes.request_email(caller.user_id, form.email, service.gate.origin(request))
    return Accepted()


@router.get("/security-log")
async def security_log(caller: Caller, before: Before = None) -> SecurityLogView:
    """What happened to the caller's account in the last 90 days, the newest first."""
    return await log_page(caller, before)


@router.get(
    "/account/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/zip": {}}}, **problems(404, 429)},
)
async def export_account(
    caller: Annotated[Access, Depends(Bearer("export"))], request: Request
) -> StreamingResponse:
    """Everything that the service stores about the caller, as a zip file. 5 per hour."""
    content = await export(caller.service, caller.user_id, caller.service.gate.origin(request))
    headers = {"content-disposition": "attachment; filename=account.zip", "cache-control": "no-store"}
    return StreamingResponse(content, media_type="application/zip", headers=headers)


@router.post("/account/delete", status_code=204, responses=problems(403, 404, 409, 429))
async def delete_account(form: PasswordForm, caller: Caller, request: Request) -> None:
    """Delete the caller's account and everything in it, for good."""
    user = await caller.service.gate.reauthenticate(caller, request.scope, form.password.get_secret_value())
    if user.role == "admin":
        raise problem(409, "An administrator's account is deleted by another administrator.")
    await caller.service.changes.delete(user)


async def log_page(caller: Access, before: int | None, of: UUID | None = None) -> SecurityLogView:
    """A page of the security log of the caller or of another user."""
    rows = await caller.service.log.of_user(of or caller.user_id, before=before, limit=_PAGE_SIZE)
    events = [SecurityEventView.model_validate(row, from_attributes=True) for row in rows]
    return SecurityLogView(events=events, next=events[-1].number if len(events) == _PAGE_SIZE else None)
