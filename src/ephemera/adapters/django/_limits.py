"""Limits of Django views, and of the whole site."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from ephemera.adapters._request_limits import By, RequestLimit, TextHeaders, finder
from ephemera.adapters.django._configuration import (
    client_address,
    configured_catalogues,
    setting,
    store,
)
from ephemera.adapters.django._sessions import as_response
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import FieldValue
from ephemera.patterns.rate_limits import Rule, WhenDown
from ephemera.web import Problem, check_rate

F = TypeVar("F", bound=Callable[..., Any])

_HEADERS = "_ephemera_limit_headers"
_METHODS = ("dispatch", "dummy")  # what `method_decorator` has a decorator decorate


def limit(
    rate: str | Rule,
    *,
    by: By = "address",
    name: str | None = None,
    when_down: WhenDown = "open",
) -> Callable[[F], F]:
    """Limit a view, sync or async; of a class, with Django's `method_decorator` and a name of its own.

    A denied request gets 429 with Retry-After as a problem document, and does not reach the view; others get
    the headers `RateLimit-Policy` and `RateLimit`. Several limits are checked one after the other.

    Args:
        rate: A sliding window such as `"60/minute"` or `"5/10 seconds"`, or a rule that is declared.
        by: Whom it counts. `"address"`: the client's address, or IPv6 network. `"user"`: the signed-in user,
            and others by address. `"header:x-api-key"`: the value of a header, and without it the address.
            Or a function of the request that returns the subject, or None for no limit.
        name: Its name in keys, headers and responses: by default that of the view.
        when_down: The policy while Redis is down: "open", "closed" or `local_share(of=...)`.

    """
    check_rate(rate, name, when_down)
    find = _finder(by)

    @cache  # `method_decorator` decorates again for each request
    def declare(named: str) -> RequestLimit:
        return RequestLimit(configured_catalogues()[0], named, rate, when_down, find)

    def decorate(view: F) -> F:
        named = name or (rate.name if isinstance(rate, Rule) else view.__name__)
        if named in _METHODS:
            raise InvalidDeclaration("limit", "the view is a class, which gives it no name", "give it name=")
        declared = declare(named)

        @wraps(view)
        def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            headers = _check(declared, request)
            if isinstance(headers, HttpResponse):
                return headers
            return _with_headers(view(request, *args, **kwargs), headers)

        @wraps(view)
        async def limited_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            headers = await sync_to_async(_check)(declared, request)
            if isinstance(headers, HttpResponse):
                return headers
            return _with_headers(await view(request, *args, **kwargs), headers)

        return cast("F", limited_async if iscoroutinefunction(view) else limited)

    return decorate


class LimitMiddleware(MiddlewareMixin):
    """The limits of the whole site: `EPHEMERA = {"LIMITS": {"site": ("600/minute", "user")}, ...}`.

    Each is a name with a rate and whom it counts, as in `limit`. Those by user need Django's
    `AuthenticationMiddleware` before this one.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Check the limits one after the other; a denied request reaches no view."""
        found: TextHeaders = []
        for each in site_limits():
            headers = _check(each, request)
            if isinstance(headers, HttpResponse):
                return headers
            found += headers
        setattr(request, _HEADERS, found)
        return None

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Report the state of the limits."""
        return _with_headers(response, getattr(request, _HEADERS, []))


def site_limits() -> list[RequestLimit]:
    """The limits of the settings."""
    return [_site_limit(name, rate, by) for name, (rate, by) in setting("LIMITS", {}).items()]


@cache
def _site_limit(name: str, rate: str | Rule, by: By) -> RequestLimit:
    return RequestLimit(configured_catalogues()[0], name, rate, "open", _finder(by))


def _finder(by: By) -> Callable[[Any, Any], FieldValue | None]:
    return finder(by, client_address(), _user)


def _user(request: HttpRequest) -> object:
    user = getattr(request, "user", None)
    if user is None:
        raise ImproperlyConfigured("a limit by='user' needs AuthenticationMiddleware before it")
    return user.pk if user.is_authenticated else None


def _check(limit: RequestLimit, request: HttpRequest) -> TextHeaders | HttpResponse:
    try:
        return limit.check(store(), request, request.META)
    except Problem as problem:
        return as_response(problem)


def _with_headers(response: HttpResponseBase, headers: TextHeaders) -> HttpResponseBase:
    for name, value in headers:  # both are lists: a middleware and a view may each have a limit
        response[name] = f"{response[name]}, {value}" if response.has_header(name) else value
    return response
