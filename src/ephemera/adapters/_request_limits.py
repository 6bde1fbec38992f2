"""Limits of WSGI requests: the subject of a request, the check, and the response to a denied one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from ephemera.errors import InvalidField
from ephemera.keyspace import Catalogue, FieldValue
from ephemera.patterns.rate_limits import Decision, Rule, WhenDown
from ephemera.sync import SyncStore
from ephemera.web import (
    ClientAddress,
    LimitSubject,
    Problem,
    declare_limit,
    limit_headers,
    limit_refusal,
    limits_of,
)

By: TypeAlias = str | Callable[[Any], FieldValue | None]
"""Whom a limit counts: `"address"`, `"user"`, `"header:x-api-key"`, or a function of the request."""

TextHeaders: TypeAlias = list[tuple[str, str]]


def finder(
    by: By, client: ClientAddress, user: Callable[[Any], object] | None
) -> Callable[[Any, Mapping[str, Any]], FieldValue | None]:
    """What finds the subject of a request and its WSGI environment; `user` finds its user's id."""
    if callable(by):
        return lambda request, _: by(request)
    subject = LimitSubject(by, has_users=user is not None)
    variable = f"HTTP_{subject.header.upper().replace('-', '_')}"

    def find(request: Any, environment: Mapping[str, Any]) -> FieldValue | None:
        value = None
        if subject.kind == "user" and user is not None:
            value = user(request)
        elif subject.kind == "header":
            value = environment.get(variable)
        return subject.of(client.network(_scope(environment)), value)

    return find


class RequestLimit:
    """One limit, declared in the catalogue, that requests are checked against."""

    def __init__(
        self,
        catalogue: Catalogue,
        name: str,
        rate: str | Rule,
        when_down: WhenDown,
        find: Callable[[Any, Mapping[str, Any]], FieldValue | None],
    ) -> None:
        self._rule = declare_limit(catalogue, name, rate, when_down)
        self._limits = limits_of(self._rule)
        self._find = find

    def check(self, store: SyncStore, request: Any, environment: Mapping[str, Any]) -> TextHeaders:
        """Count a request, and return the headers of its response; raises the `Problem` of a denial."""
        decision = self._decide(store, request, environment)
        if decision is None:
            return []
        if not decision.allowed:
            raise limit_refusal(decision)
        return as_text(limit_headers(decision))

    def _decide(self, store: SyncStore, request: Any, environment: Mapping[str, Any]) -> Decision | None:
        subject = self._find(request, environment)
        if subject is None:
            return None
        try:
            claim = self._rule.on(subject)
        except InvalidField as problem:
            detail = f"This request cannot be counted: its {problem.field} is not usable."
            raise Problem(400, "Bad Request", detail) from None
        return store[self._limits].check(claim)


def as_text(headers: Any) -> TextHeaders:
    """The headers of ASGI as WSGI has them."""
    return [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in headers]


def problem_response(problem: Problem) -> tuple[bytes, int, TextHeaders]:
    """The body, the status and the headers of a problem document."""
    headers = [("Content-Type", "application/problem+json"), *as_text(problem.headers)]
    return msgspec.json.encode(problem.document), problem.status, headers


def _scope(environment: Mapping[str, Any]) -> dict[str, Any]:
    """As much of an ASGI scope as `ClientAddress` reads."""
    headers = [
        (name, str(value).encode("latin-1", "replace"))
        for name, variable in ((b"x-forwarded-for", "HTTP_X_FORWARDED_FOR"), (b"forwarded", "HTTP_FORWARDED"))
        if (value := environment.get(variable))
    ]
    return {"client": (environment.get("REMOTE_ADDR"), 0), "headers": headers}
