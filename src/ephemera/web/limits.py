"""Limits for web requests: a pure-ASGI middleware that checks before the application runs.

    CLIENT = ClientAddress(trusted=["10.0.0.0/8"])

    def claims(scope):
        return [SEARCH.on(CLIENT.counted(scope))] if scope["path"] == "/search" else []

    app = LimitMiddleware(app, lambda scope: scope["state"]["store"][LIMITS], claims)

One trip a request that claims something, none for others, and none for who is known to be denied. The
response says how the limits stand (`limit_headers`); a denied request gets 429 as a problem document and
never reaches the application. The decision is at `scope["state"]["limits"]`, to settle or refund it.

What a request brings is never a server error: a subject that no key can be made of is 400. Redis down or
hung: each rule's `when_down` decides, and a denial is then 503. For FastAPI routes see `limit_dependencies`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeAlias

from ephemera.errors import InvalidField
from ephemera.web.limit_headers import limit_headers, refusal
from ephemera.web.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ephemera.patterns.rate_limits import Claim, Decision, Limiter
    from ephemera.web.asgi import ASGIApp, Message, Receive, Scope, Send

    Claims: TypeAlias = Iterable[Claim] | Awaitable[Iterable[Claim]]

_REQUESTS = frozenset(("http", "websocket"))
_STARTS = frozenset(("http.response.start", "websocket.accept", "websocket.http.response.start"))


class LimitMiddleware:
    """Checks the claims of every request; `limits` finds the store's limits for a scope."""

    def __init__(
        self, app: ASGIApp, limits: Callable[[Scope], Limiter], claims: Callable[[Scope], Claims]
    ) -> None:
        self._app = app
        self._limits = limits
        self._claims = claims

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take what the request claims, then run the application, or refuse the request."""
        if scope["type"] not in _REQUESTS:
            return await self._app(scope, receive, send)
        try:
            decision = await admit(scope, self._limits, self._claims)
        except Problem as problem:
            return await problem(scope, receive, send)
        if decision is None:
            return await self._app(scope, receive, send)
        scope.setdefault("state", {})["limits"] = decision

        def sending(message: Message) -> Awaitable[None]:
            if message["type"] in _STARTS:
                message = {**message, "headers": [*message.get("headers", ()), *limit_headers(decision)]}
            return send(message)

        return await self._app(scope, receive, sending)


async def admit(
    scope: Scope, limits: Callable[[Scope], Limiter], claims: Callable[[Scope], Claims]
) -> Decision | None:
    """Take what a request claims, a subject twice claimed once; a `Problem` when it may not have it."""
    try:
        claimed = claims(scope)
        if not isinstance(claimed, (list, tuple)):
            claimed = list(await claimed if isinstance(claimed, Awaitable) else claimed)
        if len(claimed) > 1:
            claimed = list({claim.id: claim for claim in claimed}.values())
    except InvalidField as problem:
        detail = f"This request cannot be counted: its {problem.field} is not usable."
        raise Problem(400, "Bad Request", detail) from None
    if not claimed:
        return None
    decision = await limits(scope).check(*claimed)
    if not decision.allowed:
        raise refusal(decision)
    return decision
