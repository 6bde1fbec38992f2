"""Resources over HTTP: ETag and 304, HEAD, 202 while something is prepared; an ASGI application a resource.

    Route("/table", Served(TABLE))                                          # Starlette
    add_resource(app, "/table", TABLE)                                      # FastAPI: `http_cache_routes`
    Route("/mine", Served(PREDICTIONS, user=lambda scope: scope["state"]["user"]))

The store is `scope["state"]["store"]` unless `store` finds it elsewhere. A resource's fields come from the
path, from what `fields` makes of the scope, and for a private resource from `user`, never from the client.

| answer | when |
|---|---|
| 304 | If-None-Match names the page's tag, weak or strong, in a list, or is `*` |
| 200 | the page, with ETag, X-Resource-Version, Cache-Control, Vary; under gzip if stored and accepted so |
| 202 | nothing is there yet, and its load takes longer than the site's `wait`; with Retry-After |
| 400 | a field that no key can be made of |
| 401 | a private resource, and nobody is signed in |
| 404 | the loader says there is none |
| 405 | neither GET nor HEAD |
| 503 | its load has failed and nothing stale is left; with Retry-After |

A page that is stale for a second or more says so, with the seconds: `Cache-Status: ephemera; hit; ttl=-12`
(RFC 9211).

Cost of a 304 for a page that this process has a copy of: no trip, and the payload is not looked at.
Redis down or hung: the same answers from copies, stale copies and the loader (`patterns.http_cache`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import Any

import msgspec

from ephemera.errors import EphemeraError, InvalidField, LoadFailed, StillLoading
from ephemera.keyspace import FieldValue, Store
from ephemera.patterns.http_cache import BoundResource, Page, Resource
from ephemera.web._asgi import Header, Receive, Scope, Send
from ephemera.web._http_cache_conditions import if_none_match, named, names
from ephemera.web._problems import Problem, unavailable

User = Callable[[Scope], str | Awaitable[str | None] | None]

_NO_FIELDS: dict[str, str] = {}
_REFUSED = re.compile(rb"[ \t]*q[ \t]*=[ \t]*0(?:\.0*)?[ \t]*")
_PREPARING = msgspec.json.encode({"status": "preparing", "detail": "It is being prepared; please ask again."})
_NO_STORE = (b"cache-control", b"no-store")
_IS_PREPARING = (
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(_PREPARING)),
    _NO_STORE,
    (b"retry-after", b"1"),
)


def state_store(scope: Scope) -> Store:
    """Where an application's lifespan has put the store."""
    store: Store = scope["state"]["store"]
    return store


class Served:
    """A resource as an ASGI application."""

    def __init__(
        self,
        resource: Resource[Any],
        *,
        store: Callable[[Scope], Store] = state_store,
        fields: Callable[[Scope], Mapping[str, FieldValue]] | None = None,
        user: User | None = None,
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
        # Who may keep a page: everybody, or its user alone.
        self._whose = b"public" if resource.private is None else b"private"
        self._no_cache = (b"cache-control", self._whose + b", no-cache")
        self._vary = _vary(resource)
        self._by_path = fields is None and user is None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: from a copy at once, otherwise as it comes."""
        tags = if_none_match(scope["headers"])
        if tags is not None and self._by_path and scope["method"] == "GET":
            headers = self._not_modified(scope, tags)
            if headers is not None:  # the hot path: nothing else is done
                await send({"type": "http.response.start", "status": 304, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
        try:
            await self._answer(scope, send, tags)
        except Problem as problem:
            # Caches may keep a 404 that says nothing, and give it to others: to a user who has a page, too.
            problem.headers += (_NO_STORE,)
            await problem(scope, receive, send)

    def _not_modified(self, scope: Scope, tags: bytes) -> list[Header] | None:
        """The headers of a 304 where this process knows at once that the client has the page."""
        live = self._store(scope)[self.resource]
        try:
            page = live.peek(live.render(scope.get("path_params", _NO_FIELDS)))
        except EphemeraError:
            return None  # said in the answer
        if page is None or not names(tags, page.etag):
            return None
        return self._headers(page.etag, page.number, self._max_age and self._left(live, page))

    async def _answer(self, scope: Scope, send: Send, tags: bytes | None) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise Problem(405, "Method Not Allowed", headers=[(b"allow", b"GET, HEAD")])
        live = self._store(scope)[self.resource]
        fields = await self._chosen(scope)
        key = _key(live, fields)
        page = live.peek(key)
        if page is None and tags is not None:
            head = await live.head(key)
            etag = None if head is None else named(tags, head.stamp)
            if head is not None and etag is not None:
                return await _send(send, 304, self._headers(etag, head.number, 0))
        try:
            page = page or await _page(live, fields)
        except StillLoading:
            return await _send(send, 202, [*_IS_PREPARING], b"" if scope["method"] == "HEAD" else _PREPARING)
        headers = self._headers(page.etag, page.number, self._max_age and self._left(live, page))
        left = live.fresh_for(page)
        if left <= -1:
            headers.append((b"cache-status", b"ephemera; hit; ttl=%d" % left))
        if tags is not None and names(tags, page.etag):
            return await _send(send, 304, headers)
        body = page.content
        if page.gzipped:
            if _accepts_gzip(scope["headers"]):
                headers.append((b"content-encoding", b"gzip"))
            else:
                body = page.body
        headers += (b"content-type", page.media_type.encode()), (b"content-length", b"%d" % len(body))
        return await _send(send, 200, headers, b"" if scope["method"] == "HEAD" else body)

    def _left(self, live: BoundResource, page: Page) -> int:
        """Seconds that a client may use a page without asking: never past the page's own time."""
        return min(self._max_age, int(live.fresh_for(page)))

    def _headers(self, etag: bytes, number: str, max_age: int) -> list[Header]:
        """What every answer about a page says, also a 304 (RFC 9110, 15.4.5)."""
        return [
            (b"etag", etag),
            (b"x-resource-version", number.encode()),
            (b"cache-control", b"%s, max-age=%d" % (self._whose, max_age)) if max_age > 0 else self._no_cache,
            self._vary,
        ]

    async def _chosen(self, scope: Scope) -> dict[str, FieldValue]:
        """The fields of the page that a request asks for."""
        given: Mapping[str, FieldValue] = scope.get("path_params", _NO_FIELDS)
        fields = {name: given[name] for name in self.resource.fields if name in given}
        if self._fields is not None:
            fields.update(self._fields(scope))
        if self._user is not None and self.resource.private is not None:
            user = self._user(scope)
            who = await user if isinstance(user, Awaitable) else user
            if who is None:
                raise Problem(401, "Unauthorized", "Sign in first: this page belongs to a user.")
            fields[self.resource.private] = who
        return fields


def _key(live: BoundResource, fields: Mapping[str, FieldValue]) -> str:
    try:
        return live.render(fields)
    except InvalidField as problem:
        detail = f"There is no such page: its {problem.field} is not usable."
        raise Problem(400, "Bad Request", detail) from None


async def _page(live: BoundResource, fields: Mapping[str, FieldValue]) -> Page:
    try:
        page = await live.page(**fields)
    except LoadFailed as failure:
        detail = "The page cannot be made at the moment; please try again."
        raise unavailable(detail, retry_after=ceil(failure.retry_after)) from None
    if page is None:
        raise Problem(404, "Not Found", "There is no such page.")
    return page


async def _send(send: Send, status: int, headers: list[Header], body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _accepts_gzip(headers: list[Header]) -> bool:
    """Whether a client takes gzip; `*` is what it does not name (RFC 9110, 12.5.3)."""
    taken: dict[bytes, bool] = {}
    for name, value in headers:
        if name == b"accept-encoding":
            for each in value.lower().split(b","):
                coding, _, weight = each.partition(b";")
                taken[coding.strip()] = _REFUSED.fullmatch(weight) is None
    return taken.get(b"gzip", taken.get(b"*", False))


def _vary(resource: Resource[Any]) -> Header:
    """What a page depends on: its declared headers, the coding, and who asks if it is private."""
    private = () if resource.private is None else ("Cookie", "Authorization")
    told = ", ".join(dict.fromkeys(("Accept-Encoding", *private, *resource.representation.vary)))
    return (b"vary", told.encode())
