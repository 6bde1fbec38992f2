"""`Ephemera.cached` and `Ephemera.page` for Flask: functions and views whose results are kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import msgspec
from flask import Response, abort, current_app, request
from werkzeug.exceptions import NotFound

from ephemera.patterns.cache import Cache
from ephemera.sync import SyncStore
from ephemera.web import key_fields

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class CachedFunction(Protocol[P, R_co]):
    """A function or a view whose results are cached; its arguments are the fields of the key."""

    cache: Cache[Any]
    """The declaration, for what has no method here."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Return the cached result, fresh or stale, or else run the function."""

    def delete(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Remove a result, after the change was committed; loads under way are not stored."""


class StoredPage(msgspec.Struct):
    """The response of a view, as the cache holds it."""

    body: bytes
    content_type: str


class _NotStored(Exception):
    """A response other than 200 and 404, for those who asked for the page."""

    def __init__(self, response: Response) -> None:
        self.response = response


def cached_function(
    function: Callable[P, R], cache: Cache[Any], opened: Callable[[], SyncStore]
) -> CachedFunction[P, R]:
    """The function behind its cache."""
    fields_of = key_fields(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", opened()[cache].get_or_load(function, **fields_of(*args, **kwargs)))

    return _with_delete(call, cache, fields_of, opened)


def cached_view(
    view: Callable[P, Any], cache: Cache[StoredPage], opened: Callable[[], SyncStore]
) -> CachedFunction[P, Response]:
    """The view behind its cache: GET and HEAD get the stored page with its ETag, or 304."""
    fields_of = key_fields(view)

    @wraps(view)
    def call(*args: P.args, **kwargs: P.kwargs) -> Response:
        if request.method not in ("GET", "HEAD"):
            return current_app.make_response(view(*args, **kwargs))
        try:
            page = opened()[cache].get_or_load(_page_loader(view), **fields_of(*args, **kwargs))
        except _NotStored as other:
            return other.response
        return abort(404) if page is None else _conditional(page)

    return _with_delete(call, cache, fields_of, opened)


def _page_loader(view: Callable[..., Any]) -> Callable[..., StoredPage | None]:
    """What runs a view as for a visitor without query, cookies and headers: the page is for all.

    It has a request of its own, so that templates and `url_for` work, and no visitor's data can be in it.
    """
    app, script = current_app._get_current_object(), request.environ.get("SCRIPT_NAME", "")  # type: ignore[attr-defined]
    path = request.path

    def load(**fields: Any) -> StoredPage | None:
        with app.test_request_context(path, environ_overrides={"SCRIPT_NAME": script}):
            try:
                response = app.make_response(app.ensure_sync(view)(**fields))
            except NotFound:
                return None
            if response.status_code != 200:
                raise _NotStored(response)
            return StoredPage(response.get_data(), response.headers.get("Content-Type", "text/html"))

    return load


def _conditional(page: StoredPage) -> Response:
    response = Response(page.body, content_type=page.content_type)
    response.add_etag()
    response.make_conditional(request)
    return response


def _with_delete(
    call: Callable[P, R],
    cache: Cache[Any],
    fields_of: Callable[..., dict[str, Any]],
    opened: Callable[[], SyncStore],
) -> CachedFunction[P, R]:
    def delete(*args: P.args, **kwargs: P.kwargs) -> bool:
        removed: bool = opened()[cache].delete(**fields_of(*args, **kwargs))
        return removed

    vars(call).update(cache=cache, delete=delete)
    return cast("CachedFunction[P, R]", call)
