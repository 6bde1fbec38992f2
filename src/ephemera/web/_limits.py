"""Rate limits for web requests: a pure-ASGI middleware that checks before the application runs.

    CLIENT = ClientAddress(trusted=["10.0.0.0/8"])

    def claims(scope):
        return [SEARCH.on(CLIENT.network(scope))] if scope["path"] == "/search" else []

    app = LimitMiddleware(app, lambda scope: scope["state"]["store"][LIMITS], claims)

One round trip for a request with claims, none for others, and none for a cached denial. The response reports
the state of the limits; a denied request gets 429 as a problem document and never reaches the application.
The decision is at `scope["state"]["limits"]`, to settle or refund it.

*Headers.* `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11, which is not an RFC
yet: two lists of Structured Fields (RFC 9651) with an item for each rule. A policy has the quota `q` and the
window `w` in seconds; the state has the remaining units `r`, and the seconds `t` until there are more, or all
of them. `Retry-After` is in whole seconds, rounded up, so a client that obeys it is never early. Partition
keys are left out, as they would reveal the subject.

*Refusals.* A denial is 429 with the draft's problem type `quota-exceeded`; while Redis is down, when each
rule's `when_down` decides, it is 503, `temporary-reduced-capacity`. Both name the `violated-policies`, and
neither may be stored by a cache. A subject that no key can be made of is 400.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from math import ceil
from typing import TypeAlias

from ephemera.errors import InvalidField
from ephemera.patterns.rate_limits import BoundRateLimits, Claim, Decision
from ephemera.patterns.rate_limits import limit_headers as limit_headers  # also public in ephemera.web
from ephemera.web._asgi import (
    RESPONSE_STARTS,
    ASGIApp,
    Message,
    Problem,
    Receive,
    Scope,
    Send,
)

RequestClaims: TypeAlias = Iterable[Claim] | Awaitable[Iterable[Claim]]

_log = logging.getLogger("ephemera.web")
_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"
_REQUESTS = frozenset(("http", "websocket"))


class LimitMiddleware:
    """Checks the claims of every request; `limits` finds the store's limits for a scope."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Callable[[Scope], BoundRateLimits],
        claims: Callable[[Scope], RequestClaims],
    ) -> None:
        self._app = app
        self._limits = limits
        self._claims = claims

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the claims of the request, then run the application, or refuse the request."""
        if scope["type"] not in _REQUESTS:
            return await self._app(scope, receive, send)
        try:
            decision = await check_request(scope, self._limits, self._claims)
        except Problem as problem:
            return await problem(scope, receive, send)
        if decision is None:
            return await self._app(scope, receive, send)
        if not decision.allowed:
            if decision.degraded:
                rules = ", ".join(outcome.rule for outcome in decision.violated)
                _log.warning("answered with 503: limits cannot be counted while Redis is down: %s", rules)
            return await limit_refusal(decision)(scope, receive, send)
        scope.setdefault("state", {})["limits"] = decision
        # Not a closure: its cells would exist while the request waits, and the garbage collector counts and
        # traverses them.
        return await self._app(scope, receive, partial(_send_with_headers, decision, send))


def _send_with_headers(decision: Decision, send: Send, message: Message) -> Awaitable[None]:
    """Send a message; add the state of the limits to the start of the response."""
    if message["type"] in RESPONSE_STARTS:
        message = {**message, "headers": [*message.get("headers", ()), *limit_headers(decision)]}
    return send(message)


def check_request(
    scope: Scope, limits: Callable[[Scope], BoundRateLimits], claims: Callable[[Scope], RequestClaims]
) -> Awaitable[Decision | None]:
    """Check the claims of a request; None without claims. Raises a `Problem` for an unusable subject."""
    try:
        claimed = claims(scope)
    except InvalidField as problem:
        raise _bad_request(problem) from None
    if claimed.__class__ is list and len(claimed) == 1:  # the usual case: no coroutine in between
        return limits(scope).check(claimed[0])
    return _check_claims(scope, limits, claimed)


async def _check_claims(
    scope: Scope, limits: Callable[[Scope], BoundRateLimits], claims: RequestClaims
) -> Decision | None:
    """Check any number of claims; a subject that is claimed twice counts once."""
    try:
        claimed = await claims if isinstance(claims, Awaitable) else claims
        single = list({claim.id: claim for claim in claimed}.values())
    except InvalidField as problem:
        raise _bad_request(problem) from None
    return await limits(scope).check(*single) if single else None


def _bad_request(problem: InvalidField) -> Problem:
    detail = f"This request cannot be counted: its {problem.field} is not usable."
    return Problem(400, "Bad Request", detail)


def limit_refusal(decision: Decision) -> Problem:
    """The response to a request that was denied."""
    violated = decision.violated
    wait = decision.retry_after
    headers = [*limit_headers(decision), (b"cache-control", b"no-store")]
    if wait is not None:
        headers.append((b"retry-after", b"%d" % _seconds(wait)))
    names = [outcome.rule for outcome in violated]
    if decision.degraded:
        return Problem(
            503,
            "Temporary Reduced Capacity",
            "Requests cannot be counted at the moment, so fewer are served; please try again.",
            f"{_PROBLEM_TYPES}temporary-reduced-capacity",
            headers=headers,
            **{"violated-policies": names},
        )
    limits = ", ".join(
        f"{each.rule} allows {each.limit} per {_window(each.claim.rule.algorithm.per)} s" for each in violated
    )
    advice = "It is more than the limit at once." if wait is None else f"Try again in {_seconds(wait)} s."
    return Problem(
        429,
        "Quota Exceeded",
        f"Too many requests: {limits}. {advice}",
        f"{_PROBLEM_TYPES}quota-exceeded",
        headers=headers,
        **{"violated-policies": names},
    )


def _window(per: int) -> int:
    """Whole seconds: the draft has no fractions."""
    return -(-per // 1000)


def _seconds(wait: float) -> int:
    return max(1, ceil(wait))
