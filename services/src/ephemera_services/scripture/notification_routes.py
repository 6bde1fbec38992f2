"""Notifications: a user's choices, the link that ends mails, and push subscriptions."""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from ephemera_services.runtime import NO_BACKEND, problems
from ephemera_services.scripture.access import Bearer, Caller
from ephemera_services.scripture.forms import (
    NotificationsForm,
    PushKey,
    PushSubscriptionForm,
    PushSubscriptionView,
)
from ephemera_services.scripture.notifications import TOKEN

router = APIRouter(tags=["notifications"])
Reader = Annotated[Caller, Depends(Bearer())]
Token = Annotated[str, Query(pattern=TOKEN, max_length=120)]

_STYLE = """
:root { color-scheme: light dark; --ink: #2a2119; --accent: #7a3b1d; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0; background: #faf6ef; color: var(--ink); }
main { max-width: 30rem; margin: 10vh auto; padding: 0 1.2rem; }
h1 { font: 600 1.7rem/1.25 Georgia, serif; }
button { font: inherit; font-weight: 600; padding: .7rem 1.2rem; border: 0; border-radius: .55rem;
  background: var(--accent); color: #fff; cursor: pointer; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #efe7db; --accent: #eeb07f; } body { background: #16130f; } button { color: #2a1608; }
}"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Unsubscribe</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><style>{}</style></head>
<body><main><h1>Unsubscribe</h1>{}</main></body></html>"""
_ASKED = "<p>Do you want no more mails about {}?</p><form method=post><button>Unsubscribe</button></form>"
_DONE = "<p>You will get no more mails about {}.</p>"
_ABOUT = {"account": "your account", "content": "new content"}
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'self'"
    ),
}


@router.get("/me/notifications", responses=problems(429))
async def notifications(caller: Reader) -> NotificationsForm:
    """What the caller is notified of, by channel."""
    found = await caller.service.notifications.get(_user_id(caller))
    return NotificationsForm.model_validate(found)


@router.put("/me/notifications", responses=problems(409, 429))
async def set_notifications(form: NotificationsForm, caller: Reader) -> NotificationsForm:
    """Change what the caller is notified of, from the next notification on."""
    await caller.service.notifications.replace(_user_id(caller), form.model_dump())
    return form


@router.get("/unsubscribe", response_class=HTMLResponse, responses=problems(404), openapi_extra=NO_BACKEND)
async def confirm_unsubscription(request: Request, token: Token) -> HTMLResponse:
    """The page with a button that ends mails of a kind; changes nothing."""
    found = request.app.state.service.unsubscribe_links.read(token)
    return _page(_ASKED, found.kind)


@router.post("/unsubscribe", response_class=HTMLResponse, responses=problems(404))
async def unsubscribe(request: Request, token: Token) -> HTMLResponse:
    """End mails of a kind with the link of one, as mail readers do with one click (RFC 8058)."""
    service: Any = request.app.state.service
    found = service.unsubscribe_links.read(token)
    await service.notifications.end_mails(found)
    return _page(_DONE, found.kind)


@router.get("/push/public-key", responses=problems(404), openapi_extra=NO_BACKEND)
async def push_key(request: Request) -> PushKey:
    """The `applicationServerKey` for `PushManager.subscribe`; 404 if push is not configured."""
    return PushKey(public_key=request.app.state.service.push.public_key())


@router.post("/me/push-subscriptions", status_code=201, responses=problems(404, 409, 429))
async def subscribe(form: PushSubscriptionForm, caller: Reader) -> PushSubscriptionView:
    """Send the caller's notifications to a browser: its `PushSubscription` as JSON; ten, the newest."""
    keys = form.keys
    subscription_id = await caller.service.push.subscribe(
        _user_id(caller), form.endpoint, keys.p256dh, keys.auth
    )
    return PushSubscriptionView(subscription_id=subscription_id)


@router.delete("/me/push-subscriptions/{subscription_id}", status_code=204, responses=problems(404, 429))
async def end_subscription(subscription_id: UUID, caller: Reader) -> None:
    """Send nothing more to a browser."""
    await caller.service.push.unsubscribe(_user_id(caller), subscription_id)


def _user_id(caller: Caller) -> UUID:
    return UUID(caller.user_id or "")


def _page(text: str, kind: str) -> HTMLResponse:
    return HTMLResponse(_PAGE.format(_STYLE, text.format(_ABOUT[kind])), headers=_HEADERS)
