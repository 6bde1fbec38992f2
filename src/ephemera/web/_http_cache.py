"""Cached resources over HTTP: ETag and 304, HEAD, 202 while a page is prepared; one ASGI app per resource.

    Route("/table", ResourceApp(TABLE))                                     # Starlette
    add_resource(app, "/table", TABLE)                                      # FastAPI: `ephemera.web.fastapi`
    Route("/mine", ResourceApp(PREDICTIONS, user=lambda scope: scope["state"]["user"]))

The store is `scope["state"]["store"]` unless `store` finds it elsewhere. A resource's fields come from the
path, from what `fields` makes of the scope, and for a private resource from `user`, never from the client.

| response | when |
|---|---|
| 304 | If-None-Match contains the page's tag, weak or strong, in a list, or is `*` |
| 200 | the page, with ETag, X-Resource-Version, Cache-Control, Vary; compressed if stored and accepted so |
| 202 | there is no page yet, and its load takes longer than the site's `wait`; with Retry-After |
| 400 | a field that no key can be made of |
| 401 | a private resource, and no user is signed in |
| 404 | the loader returned None |
| 405 | neither GET nor HEAD |
| 503 | its load has failed and there is no stale page; with Retry-After |

A page that is stale for a second or more has a header with the seconds: `Cache-Status: ephemera; hit;
ttl=-12` (RFC 9211).

If-None-Match is read as in RFC 9110 (13.1.2): tags are compared weakly, so `W/"x"` and `"x"` are the same,
and `*` matches any page. A value that is not a list of tags is ignored, and the client gets the page.

*Cost.* A 304 for a page in this process's local cache takes no round trip, and does not touch the payload.

*When Redis is down*, the same responses come from local pages, stale pages and the loader
(`patterns.http_cache`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from math import ceil
from typing import Any

import msgspec

from ephemera.errors import EphemeraError, InvalidField, LoadFailed, StillLoading
from ephemera.keyspace import FieldValue, Store
from ephemera.patterns.http_cache import BoundResource, Page, Resource
from ephemera.web._asgi import Header, Problem, Receive, Scope, Send, unavailable

_log = logging.getLogger("ephemera.web")
UserOf = Callable[[Scope], str | Awaitable[str | None] | None]

"""Finds the user of a scope; None when no user is signed in."""

_TAG = rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAG_LIST = re.compile(rb"[ \t,]*%s(?:[ \t]*,[ \t,]*%s)*[ \t,]*" % (_TAG, _TAG))
_EACH_TAG = re.compile(rb'((?:W/)?"([\x21\x23-\x7e\x80-\xff]*)")')
_MAX_TAG_LIST = 8192  # bytes; no browser sends more
_NO_FIELDS: dict[str, str] = {}
_REFUSED = re.compile(rb"[ \t]*q[ \t]*=[ \t]*0(?:\.0*)?[ \t]*")
_PREPARING = msgspec.json.encode(
    {"status": "preparing", "detail": "The page is being prepared; please try again."}
)
_NO_STORE = (b"cache-control", b"no-store")
_IS_PREPARING = (
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(_PREPARING)),
    _NO_STORE,
    (b"retry-after", b"1"),
)


def store_from_state(scope: Scope) -> Store:
    """The store that the application's lifespan has put into the state."""
    store: Store = scope["state"]["store"]
    return store


class ResourceApp:
    """An ASGI application that serves a cached resource.

    Args:
        resource: What it serves.
        store: Finds the store of a scope; by default the one in its state.
        fields: Finds the fields of the key; by default they come from the path.
        user: Finds the id of the user, for a private resource.

    """

    def __init__(
        self,
        resource: Resource[Any],
        *,
        store: Callable[[Scope], Store] = store_from_state,
        fields: Callable[[Scope], Mapping[str, FieldValue]] | None = None,
        user: UserOf | None = None,
    ) -> None:
        if (resource.private is None) != (user is None):
            raise TypeError(
                f"{resource!r} is {'public' if resource.private is None else 'private'}: "
                f"{'leave out' if resource.private is None else 'give'} user="
            )
        self.resource = resource
        self._store = store
        self._fields = fields
        self._user = user
        self._max_age = int(resource.representation.max_age.total_seconds())
        # Shared caches may store a public page, only the user's browser a private one.
        self._visibility = b"public" if resource.private is None else b"private"
        self._no_cache = (b"cache-control", self._visibility + b", no-cache")
        self._vary = _vary(resource)
        self._fields_from_path = fields is None and user is None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request: from the local cache at once, otherwise when the page is loaded."""
        tags = _if_none_match(scope["headers"])
        if tags is not None and self._fields_from_path and scope["method"] == "GET":
            headers = self._not_modified(scope, tags)
            if headers is not None:  # the hot path
                await send({"type": "http.response.start", "status": 304, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
        try:
            await self._respond(scope, send, tags)
        except Problem as problem:
            # Caches may store a 404 without Cache-Control, and serve it to a user who has a page.
            problem.headers += (_NO_STORE,)
            await problem(scope, receive, send)

    def _not_modified(self, scope: Scope, tags: bytes) -> list[Header] | None:
        """The headers of a 304 if the local cache shows that the client has the page."""
        bound = self._store(scope)[self.resource]
        try:
            page = bound.peek(bound.render(scope.get("path_params", _NO_FIELDS)))
        except EphemeraError:
            return None  # the full response reports it
        if page is None or not _matches(tags, page.etag):
            return None
        return self._headers(page.etag, page.number, self._max_age and self._client_max_age(bound, page))

    async def _respond(self, scope: Scope, send: Send, tags: bytes | None) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise Problem(405, "Method Not Allowed", headers=[(b"allow", b"GET, HEAD")])
        bound = self._store(scope)[self.resource]
        fields = await self._page_fields(scope)
        key = _key(bound, fields)
        page = bound.peek(key)
        if page is None and tags is not None and bound.accepts(fields):
            head = await bound.head(key)
            etag = None if head is None else _matching_tag(tags, head.stamp)
            if head is not None and etag is not None:
                return await _send(send, 304, self._headers(etag, head.number, 0))
        try:
            page = page or await _page(bound.locate, fields)
            if page.pointer and (tags is None or not _matches(tags, page.etag)):
                page = await _page(bound.page, fields)
        except StillLoading:
            return await _send(send, 202, [*_IS_PREPARING], b"" if scope["method"] == "HEAD" else _PREPARING)
        headers = self._headers(page.etag, page.number, self._max_age and self._client_max_age(bound, page))
        left = bound.fresh_for(page)
        if left <= -1:
            headers.append((b"cache-status", b"ephemera; hit; ttl=%d" % left))
        if tags is not None and _matches(tags, page.etag):
            return await _send(send, 304, headers)
        body = page.content
        if page.gzipped:
            if _accepts_gzip(scope["headers"]):
                headers.append((b"content-encoding", b"gzip"))
            else:
                body = await self._decompressed(scope, fields, page)
        headers += (b"content-type", page.media_type.encode()), (b"content-length", b"%d" % len(body))
        return await _send(send, 200, headers, b"" if scope["method"] == "HEAD" else body)

    async def _decompressed(self, scope: Scope, fields: Mapping[str, FieldValue], page: Page) -> bytes:
        """The body of a compressed page; one that is damaged is removed, and the client may ask again."""
        try:
            return page.body
        except ValueError as problem:
            _log.warning("%r: %s; it is removed", self.resource, problem)
        with suppress(EphemeraError):
            await self._store(scope)[self.resource.site].delete(self.resource.at(**fields))
        raise unavailable("The page cannot be read at the moment; please try again.", retry_after=1)

    def _client_max_age(self, bound: BoundResource, page: Page) -> int:
        """Seconds that a client may use a page without asking: never beyond its freshness."""
        return min(self._max_age, int(bound.fresh_for(page)))

    def _headers(self, etag: bytes, number: str, max_age: int) -> list[Header]:
        """The headers of every response about a page, even of a 304 (RFC 9110, 15.4.5)."""
        return [
            (b"etag", etag),
            (b"x-resource-version", number.encode()),
            (b"cache-control", b"%s, max-age=%d" % (self._visibility, max_age))
            if max_age > 0
            else self._no_cache,
            self._vary,
        ]

    async def _page_fields(self, scope: Scope) -> dict[str, FieldValue]:
        """The fields of the requested page."""
        given: Mapping[str, FieldValue] = scope.get("path_params", _NO_FIELDS)
        fields = {name: given[name] for name in self.resource.fields if name in given}
        if self._fields is not None:
            fields.update(self._fields(scope))
        if self._user is not None and self.resource.private is not None:
            user = self._user(scope)
            user_id = await user if isinstance(user, Awaitable) else user
            if user_id is None:
                raise Problem(401, "Unauthorized", "Sign in first: this page is private.")
            fields[self.resource.private] = user_id
        return fields


def _key(bound: BoundResource, fields: Mapping[str, FieldValue]) -> str:
    try:
        return bound.render(fields)
    except InvalidField as problem:
        detail = f"There is no such page: its {problem.field} is invalid."
        raise Problem(400, "Bad Request", detail) from None


async def _page(find: Callable[..., Awaitable[Page | None]], fields: Mapping[str, FieldValue]) -> Page:
    try:
        page = await find(**fields)
    except LoadFailed as failure:
        detail = "The page cannot be loaded at the moment; please try again."
        raise unavailable(detail, retry_after=ceil(failure.retry_after)) from None
    if page is None:
        raise Problem(404, "Not Found", "There is no such page.")
    return page


async def _send(send: Send, status: int, headers: list[Header], body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _accepts_gzip(headers: list[Header]) -> bool:
    """Whether a client accepts gzip; `*` stands for codings it does not name (RFC 9110, 12.5.3)."""
    accepted: dict[bytes, bool] = {}
    for name, value in headers:
        if name == b"accept-encoding":
            for each in value.lower().split(b","):
                coding, _, weight = each.partition(b";")
                accepted[coding.strip()] = _REFUSED.fullmatch(weight) is None
    return accepted.get(b"gzip", accepted.get(b"*", False))


def _vary(resource: Resource[Any]) -> Header:
    """The request headers that a page depends on: declared ones, the coding, and credentials if private."""
    private = () if resource.private is None else ("Cookie", "Authorization")
    names = ", ".join(dict.fromkeys(("Accept-Encoding", *private, *resource.representation.vary)))
    return (b"vary", names.encode())


def _if_none_match(headers: Iterable[Header]) -> bytes | None:
    """The tags of a request as one list; None without the header."""
    found = None
    for name, value in headers:
        if name == b"if-none-match":
            found = value if found is None else found + b", " + value
    return found


def _matches(tags: bytes, etag: bytes) -> bool:
    """Whether a list of tags contains this one."""
    if tags == etag:  # the usual case
        return True
    opaque = etag[etag.index(b'"') + 1 : -1]
    return tags.strip(b" \t") == b"*" or any(each[1] == opaque for each in _tags(tags))


def _matching_tag(tags: bytes, stamp: str) -> bytes | None:
    """The tag of a list with this stamp, as the list spells it; None for `*`."""
    opaque = stamp.encode()
    return next((each[0] for each in _tags(tags) if each[1] == opaque), None)


def _tags(tags: bytes) -> list[tuple[bytes, bytes]]:
    """The tags of a list, each with and without quotes; none if it is not a list."""
    if len(tags) > _MAX_TAG_LIST or _TAG_LIST.fullmatch(tags) is None:
        return []
    return _EACH_TAG.findall(tags)
