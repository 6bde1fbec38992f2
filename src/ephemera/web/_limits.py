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

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeAlias

from ephemera.errors import InvalidField
from ephemera.patterns.rate_limits import BoundRateLimits, Claim, Decision
from ephemera.web._asgi import ASGIApp, Message, Receive, Scope, Send
from ephemera.web._limit_headers import limit_headers, refusal
from ephemera.web._problems import Problem

Claims: TypeAlias = Iterable[Claim] | Awaitable[Iterable[Claim]]

_REQUESTS = frozenset(("http", "websocket"))
_STARTS = frozenset(("http.response.start", "websocket.accept", "websocket.http.response.start"))


class LimitMiddleware:
    """Checks the claims of every request; `limits` finds the store's limits for a scope."""

    def __init__(
        self, app: ASGIApp, limits: Callable[[Scope], BoundRateLimits], claims: Callable[[Scope], Claims]
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
        if not decision.allowed:
            return await refusal(decision)(scope, receive, send)
        scope.setdefault("state", {})["limits"] = decision
        # Not a function of its own in here: its cells would be there while the request waits for the server,
        # and what waits is what Python's collector counts and looks through.
        return await self._app(scope, receive, partial(_telling, decision, send))


def _telling(decision: Decision, send: Send, message: Message) -> Awaitable[None]:
    """Send a message; the response's start tells how the limits stand."""
    if message["type"] in _STARTS:
        message = {**message, "headers": [*message.get("headers", ()), *limit_headers(decision)]}
    return send(message)


def admit(
    scope: Scope, limits: Callable[[Scope], BoundRateLimits], claims: Callable[[Scope], Claims]
) -> Awaitable[Decision | None]:
    """Take what a request claims; None where that is nothing. A `Problem` for a subject that is none."""
    try:
        claimed = claims(scope)
    except InvalidField as problem:
        raise _uncountable(problem) from None
    if claimed.__class__ is list and len(claimed) == 1:  # as most do: no coroutine of ours is between
        return limits(scope).check(claimed[0])
    return _admit_any(scope, limits, claimed)


async def _admit_any(
    scope: Scope, limits: Callable[[Scope], BoundRateLimits], claims: Claims
) -> Decision | None:
    """The same for any number of claims, a subject twice claimed once."""
    try:
        claimed = await claims if isinstance(claims, Awaitable) else claims
        single = list({claim.id: claim for claim in claimed}.values())
    except InvalidField as problem:
        raise _uncountable(problem) from None
    return await limits(scope).check(*single) if single else None


def _uncountable(problem: InvalidField) -> Problem:
    detail = f"This request cannot be counted: its {problem.field} is not usable."
    return Problem(400, "Bad Request", detail)
