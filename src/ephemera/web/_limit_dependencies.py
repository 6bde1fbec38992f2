"""FastAPI dependencies for limits: a route's own rules, with the same headers and refusals. Needs FastAPI.

    limited = Limited(lambda scope: store[LIMITS], lambda scope: [ASK.on(CLIENT.counted(scope))])

    @app.post("/ask", dependencies=[Depends(limited)], responses=LIMITED)
    async def ask() -> Answer: ...

    app.add_exception_handler(Problem, send_problem)

A refusal is raised as a `Problem`; `send_problem` makes the response of it, and so does `SessionMiddleware`
when it is above. Several on one route are checked one after the other: to have all or none of their rules
taken, claim them in one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ephemera.patterns.rate_limits import (
    BoundRateLimits,
    Decision,
)
from ephemera.web._asgi import Scope
from ephemera.web._limit_headers import limit_headers, refusal
from ephemera.web._limits import Claims, admit
from ephemera.web._problems import Problem

__all__ = ["LIMITED", "Limited", "send_problem"]

_SECONDS = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}}
_DOCUMENT = {"application/problem+json": {"schema": {"type": "object"}}}

LIMITED: dict[int | str, dict[str, Any]] = {
    429: {"description": "A limit is used up", "headers": _SECONDS, "content": _DOCUMENT},
    503: {"description": "Limits cannot be counted at the moment", "headers": _SECONDS, "content": _DOCUMENT},
}
"""For a route's `responses`: what a limit may answer in its place."""


class Limited:
    """Takes what a request claims before its route runs; gives the decision, to settle or refund it."""

    def __init__(self, limits: Callable[[Scope], BoundRateLimits], claims: Callable[[Scope], Claims]) -> None:
        self._limits = limits
        self._claims = claims

    async def __call__(self, request: Request, response: Response) -> Decision | None:
        """The decision, or None when nothing is claimed; a denial is raised as a problem."""
        decision = await admit(request.scope, self._limits, self._claims)
        if decision is None:
            return None
        if not decision.allowed:
            raise refusal(decision)
        for name, value in limit_headers(decision):
            response.headers.append(name.decode(), value.decode())
        return decision


async def send_problem(request: Request, problem: Problem) -> Problem:  # noqa: ARG001 - Starlette's form
    """The handler of problems for an application: a problem is its own response."""
    return problem
