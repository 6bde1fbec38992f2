"""`Ephemera.limit`: a limit written beside its route, as a decorator or as a dependency.

    @app.post("/login")
    @eph.limit("3/hour", by="address")
    async def login(...): ...

    router = APIRouter(dependencies=[eph.limit("600/minute", by="user", name="api")])

A decorated route keeps its signature for type checkers and for Python code that calls it, which is not
limited. FastAPI sees one more dependency, the first one: a denied request costs no other.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from itertools import count
from typing import Annotated, Any, NoReturn, TypeAlias, TypeVar, cast

from fastapi import params
from starlette.requests import HTTPConnection, Request

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import FieldValue, field_value
from ephemera.patterns.rate_limits import BoundRateLimits, Claim, Rule
from ephemera.web._asgi import Scope
from ephemera.web._client_address import ClientAddress
from ephemera.web._decorator_order import replacing
from ephemera.web._fastapi_dependencies import Limited
from ephemera.web._function_caches import evaluated_signature
from ephemera.web._limit_declarations import LimitSubject
from ephemera.web._limits import RequestClaims
from ephemera.web._openapi import LIMIT_MARKER, Marked
from ephemera.web._sessions import RequestSession

F = TypeVar("F", bound=Callable[..., Any])

Subject: TypeAlias = FieldValue | None
Finder: TypeAlias = Callable[[Scope], Subject | Awaitable[Subject]]
By: TypeAlias = str | Callable[[Any], Subject | Awaitable[Subject]]
"""Whom a limit counts: `"address"`, `"user"`, `"header:x-api-key"`, or a function of the request."""


def subject_finder(by: By, client: ClientAddress, user_field: str | None) -> Finder:
    """What finds the subject of a request; `user_field` names the user's id in a session."""
    if callable(by):
        return _by_function(by)
    subject = LimitSubject(by, has_users=user_field is not None)
    header = subject.header.encode()

    async def of_user(scope: Scope) -> Subject:
        session = await RequestSession.of(HTTPConnection(scope)).get()
        user = None if session is None else field_value(session, user_field or "")
        return subject.of(client.network(scope), user)

    def of_header(scope: Scope) -> Subject:
        value = next((value for each, value in scope["headers"] if each == header), b"").decode("latin-1")
        return subject.of(client.network(scope), value)

    def of_address(scope: Scope) -> Subject:
        return subject.of(client.network(scope), None)

    return {"user": of_user, "header": of_header}.get(subject.kind, of_address)


def _by_function(function: Callable[[Any], Subject | Awaitable[Subject]]) -> Finder:
    return lambda scope: function(Request(scope) if scope["type"] == "http" else HTTPConnection(scope))


class LimitCheck(Limited, Marked):
    """The dependency that checks one rule for the subject of a request."""

    def __init__(
        self,
        rule: Rule,
        limits: Callable[[Scope], BoundRateLimits],
        subject: Finder,
    ) -> None:
        def claims(scope: Scope) -> RequestClaims:
            found = subject(scope)
            return claims_of_awaited(found) if isinstance(found, Awaitable) else claims_of(found)

        def claims_of(found: Subject) -> list[Claim]:
            return [] if found is None else [rule.on(found)]

        async def claims_of_awaited(found: Awaitable[Subject]) -> list[Claim]:
            return claims_of(await found)

        Limited.__init__(self, limits, claims)
        Marked.__init__(self, LIMIT_MARKER)


class RouteLimit(params.Depends):
    """A limit with a name: a dependency for `dependencies=[...]` or `Annotated`, and a decorator."""

    def __call__(self, route: F, /) -> F:
        """Limit a route."""
        return add_dependency(route, self)


class UnnamedLimit:
    """A limit that is named for the route it decorates, and declared then."""

    def __init__(self, declare: Callable[[str], RouteLimit]) -> None:
        self._declare = declare

    def __call__(self, route: F, /) -> F:
        """Declare the limit, and limit the route."""
        return self._declare(str(getattr(route, "__name__", "limit")))(route)

    @property
    def dependency(self) -> NoReturn:
        """What FastAPI reads of a dependency."""
        raise InvalidDeclaration(
            "limit", "as a dependency it has no route to be named for", "give it one: eph.limit(..., name=)"
        )


def add_dependency(route: F, dependency: params.Depends) -> F:
    """The same route with one more dependency, which is resolved before the others."""
    signature = evaluated_signature(route)
    parameters = signature.parameters
    name = next(each for n in count() if (each := f"ephemera_dependency_{n}") not in parameters)
    added = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Any, dependency])
    given = list(parameters.values())
    instance = given[:1] if given and given[0].name == "self" else []  # a method of a class: it gets bound
    others = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in given[len(instance) :]]
    wrapper = _dropping(route, name)
    vars(wrapper)["__signature__"] = signature.replace(parameters=[*instance, added, *others])
    return replacing(route, cast("F", wrapper))


def _dropping(route: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that calls the route without this argument."""
    if inspect.iscoroutinefunction(route):

        @wraps(route)
        async def call(*args: Any, **kwargs: Any) -> Any:
            kwargs.pop(name, None)
            return await route(*args, **kwargs)

        return call

    @wraps(route)
    def call_plain(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop(name, None)
        return route(*args, **kwargs)

    return call_plain
