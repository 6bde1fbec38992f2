"""`Ephemera.cached` and `Ephemera.page`: a cache written beside the function whose results it keeps.

    @app.get("/profiles/{user_id}")
    @eph.cached("profile:{user_id}", fresh=timedelta(minutes=5))
    async def profile(user_id: str) -> Profile | None: ...

    await profile("ann")            # from anywhere: cached, with the function's own signature
    await profile.delete("ann")     # after a commit

The key's fields are the function's parameters, all of them: what is not in the key cannot change the result.
Other arguments, such as a database, come from elsewhere; a `Cache` of your own takes any loader.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from typing import Annotated, Any, ParamSpec, Protocol, TypeVar, cast

import msgspec
from fastapi import params
from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import FieldValue, Store
from ephemera.patterns.cache import Cache
from ephemera.patterns.http_cache import PageRef, Resource
from ephemera.web._decorator_order import replacing
from ephemera.web._function_caches import (
    DOCUMENTED,
    check_parameters,
    evaluated_signature,
    key_fields,
    own_signature,
)
from ephemera.web._http_cache import ResourceApp
from ephemera.web._openapi import PAGE_MARKER, KeyFields, Marked

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_FIELDS = "ephemera.page_fields"  # where a page's fields are in its scope
_REQUEST = "ephemera_request"


class CachedFunction(Protocol[P, R_co]):
    """A function whose results are cached; its arguments are the fields of the key."""

    cache: Cache[Any]
    """The declaration, for what has no method here: `store[profile.cache]`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Return the cached result, fresh or stale, or else run the function."""

    def delete(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, bool]:
        """Remove a result, after the change was committed; loads under way are not stored."""


class PageFunction(Protocol[P, R_co]):
    """A route whose results are pages with ETags; called from Python, it runs the function itself."""

    resource: Resource[Any]
    """The declaration: `store[table.resource]`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Run the function."""

    def at(self, *args: P.args, **kwargs: P.kwargs) -> PageRef:
        """Name a page, for `bump` and `delete` of several pages together."""

    def bump(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, None]:
        """Load a page again and replace it, after the change was committed."""


def page_loader(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[bytes | None]]:
    """The loader of a page: the function's result as JSON."""
    encode = _json_encoder(function)

    async def load(_source: None, **fields: Any) -> bytes | None:
        result = await function(**fields)
        return None if result is None else encode(result)

    return load


def _json_encoder(function: Callable[..., Any]) -> Callable[[Any], bytes]:
    """What makes JSON of a function's results as FastAPI does: by the return type, if pydantic knows it."""
    returned = evaluated_signature(function).return_annotation
    if isinstance(returned, str) or returned is inspect.Signature.empty:
        return msgspec.json.encode
    try:
        return partial(TypeAdapter(returned).dump_json, by_alias=True)
    except PydanticSchemaGenerationError:
        return msgspec.json.encode


def cached_function(
    function: Callable[P, Awaitable[R]], cache: Cache[Any], opened: Callable[[], Store]
) -> CachedFunction[P, R]:
    """The function behind its cache, on the store that is open when it is called."""
    load = cache.cached(function)  # checks that it can be called with the fields
    fields_of = key_fields(function)

    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        kwargs.pop(DOCUMENTED, None)
        return await load(opened(), **fields_of(*args, **kwargs))

    async def delete(*args: P.args, **kwargs: P.kwargs) -> bool:
        return await opened()[cache].delete(**fields_of(*args, **kwargs))

    vars(call).update(__signature__=_documented(function, cache), cache=cache, delete=delete)
    return cast("CachedFunction[P, R]", call)


def _documented(function: Callable[..., Any], cache: Cache[Any]) -> inspect.Signature:
    """The signature of a cached function, by which FastAPI documents the 400 of its fields, if it has any."""
    signature = evaluated_signature(function)
    if not cache.keyspace.template.fields or DOCUMENTED in signature.parameters:
        return signature
    added = inspect.Parameter(
        DOCUMENTED,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Any, params.Depends(KeyFields())],
    )
    return signature.replace(parameters=[*signature.parameters.values(), added])


def page_function(
    function: Callable[P, Awaitable[R]], resource: Resource[Any], opened: Callable[[], Store]
) -> PageFunction[P, R]:
    """The function as a route that answers with its page, or with 304."""
    check_parameters(resource.cache.keyspace.pattern, function, resource.fields)
    fields_of, private, signature = (
        key_fields(function),
        resource.private,
        _documented(function, resource.cache),
    )
    _check_sources(resource, own_signature(function))
    app = ResourceApp(
        resource,
        store=lambda _: opened(),
        fields=lambda scope: cast("dict[str, FieldValue]", scope[_FIELDS]),
        user=None if private is None else lambda scope: str(scope[_FIELDS][private]),
    )

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop(DOCUMENTED, None)
        if kwargs.pop(_REQUEST, None) is None:
            return await function(*args, **kwargs)
        return _PageResponse(app, fields_of(*args, **kwargs))

    def at(*args: Any, **kwargs: Any) -> PageRef:
        return resource.at(**fields_of(*args, **kwargs))

    async def bump(*args: Any, **kwargs: Any) -> None:
        await opened()[resource.site].bump(at(*args, **kwargs))

    request = inspect.Parameter(
        _REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Any, params.Depends(_PageRequest())]
    )
    parameters = [*signature.parameters.values(), request]
    vars(call).update(
        __signature__=signature.replace(parameters=parameters), resource=resource, at=at, bump=bump
    )
    return replacing(function, cast("PageFunction[P, R]", call))


def _check_sources(resource: Resource[Any], signature: inspect.Signature) -> None:
    """Refuse a page that depends on what shared caches do not see, unless it is private to its user."""
    unseen = {name for name, parameter in signature.parameters.items() if _is_unseen(parameter)}
    if unseen != {*filter(None, (resource.private,))}:
        raise InvalidDeclaration(
            resource.cache.keyspace.pattern,
            f"from a dependency, a header or a cookie it takes {', '.join(sorted(unseen)) or 'nothing'}",
            "take the user's id from a dependency and name it by private=, the rest from the path or query",
        )


def _is_unseen(parameter: inspect.Parameter) -> bool:
    sources = (*getattr(parameter.annotation, "__metadata__", ()), parameter.default)
    return any(isinstance(each, (params.Depends, params.Header, params.Cookie)) for each in sources)


class _PageRequest(Marked):
    """The dependency by which a page knows that a request calls it."""

    def __init__(self) -> None:
        super().__init__(PAGE_MARKER)

    async def __call__(self, connection: HTTPConnection) -> HTTPConnection:
        return connection


class _PageResponse(Response):
    """The response of a page, which `ResourceApp` sends."""

    def __init__(self, app: ResourceApp, fields: dict[str, Any]) -> None:
        self.background = None
        self.status_code = 200
        self.init_headers()
        self._app = app
        self._fields = fields

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, _FIELDS: self._fields}, receive, send)
