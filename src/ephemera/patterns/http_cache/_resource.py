"""Pages, and a resource of one store: its page from this process or from its cache, within a time limit.

`SiteContext` is what a site and its resources share: the source, the windows, the request counts and the
background tasks.

A page's ETag is a keyed hash of its content; the key is the page's Redis key and media type. So it survives
the loss of everything: the same content has the same ETag again, other content never has, and no two users'
pages share one. A page that is stored as gzip has a weak ETag, since it is sent with and without that
encoding. Its number (`X-Resource-Version`) is assigned by the server when it is stored.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b, sha256
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias

import msgspec

from ephemera._bounded_cache import BoundedCache
from ephemera._futures import cancel_all
from ephemera.errors import InvalidDeclaration, LoadFailed, StillLoading, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Store
from ephemera.patterns._server_clock import SERVER_CLOCK
from ephemera.patterns.cache import EntryHead, Freshness, cache_engine
from ephemera.patterns.windows import BoundWindows, WindowState

if TYPE_CHECKING:
    from ephemera.patterns.http_cache._declaration import HttpCache, Resource

_STAMP_BYTES = 12  # 16 characters of base64
_GZIP_LEVEL = 6
_GZIP = 31  # zlib's name for data in the format of gzip
_MAX_BODY = 64 * 1024 * 1024  # bytes
_ETAG = re.compile(rb'(W/)?"[A-Za-z0-9_-]{16}"')
_Milliseconds: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]  # until the year 9999

_BACKOFF = 1.0  # seconds in which a load that failed, with nothing to serve, is not repeated
_MAX_REMEMBERED = 10_000  # keys
_MAX_COUNTED = 10_000  # keys
_MAX_TASKS = 64
_log = logging.getLogger("ephemera.patterns.http_cache")


class Page(msgspec.Struct, array_like=True, gc=False):
    """A page; treat it as frozen."""

    etag: bytes  # as in the header, with its quotation marks
    media_type: Annotated[str, msgspec.Meta(pattern=r"^[ -~]{1,200}$")]
    gzipped: bool
    made_at: _Milliseconds  # since 1970, before its load
    fresh: _Milliseconds  # from when it is stored
    stale: _Milliseconds  # after that
    bumped_with: list[str]  # the keys of all pages that were replaced in the same step
    content: bytes
    number: str = ""
    """Its version: digits that grow whenever the content changes."""
    pointer: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    """The SHA-256 of its content, if that is in a body store and not here."""

    def __post_init__(self) -> None:
        """Refuse what Redis holds and `build_page` never makes: these bytes go into a header."""
        if _ETAG.fullmatch(self.etag) is None:
            raise ValueError("not the ETag of a page")

    @property
    def stamp(self) -> str:
        """The hash in its ETag, without quotation marks."""
        return self.etag[-17:-1].decode()

    @property
    def body(self) -> bytes:
        """Its content as a client without gzip gets it; ValueError if it is damaged or too large."""
        return _gunzipped(self.content) if self.gzipped else self.content

    def json(self) -> Any:
        """Return its content, decoded."""
        return msgspec.json.decode(self.body)


class _SettledPage(Page, array_like=True, gc=False):
    """A page of `Settled` content; stored, it is a page like any other."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What a loader returns for content that rarely changes, such as a past season's table.

    The page is fresh as the resource's `settled=` says, whatever the windows; without it this changes
    nothing. A bump replaces it as any other, and the first request after an opening refreshes it once.
    """

    content: Any
    """Bytes, text, or what becomes JSON."""


def _gunzipped(content: bytes) -> bytes:
    inflate = zlib.decompressobj(wbits=_GZIP)
    try:
        body = inflate.decompress(content, _MAX_BODY)
    except zlib.error as problem:
        raise ValueError(f"the page is damaged: {problem}") from None
    if not inflate.eof:  # a few bytes can stand for gigabytes
        raise ValueError(f"the page is incomplete, or larger than {_MAX_BODY:,} bytes")
    return body


def build_page(key: str, value: Any, media_type: str, *, compress_over: int, made_at: float) -> Page:
    """Return the page of what a loader returned: bytes and text as they are, anything else as JSON."""
    make: type[Page] = Page
    if isinstance(value, Settled):
        make, value = _SettledPage, value.content
    if isinstance(value, str):
        body = value.encode()
    else:
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    digest = blake2b(body, digest_size=_STAMP_BYTES, key=_hash_key(key, media_type)).digest()
    stamp = urlsafe_b64encode(digest)
    gzipped = len(body) > compress_over
    return make(
        etag=b'W/"%s"' % stamp if gzipped else b'"%s"' % stamp,
        media_type=media_type,
        gzipped=gzipped,
        made_at=int(made_at),
        fresh=0,  # set when it is stored
        stale=0,
        bumped_with=[],
        content=gzip.compress(body, _GZIP_LEVEL, mtime=0) if gzipped else body,
        number=f"{made_at * 1000:016.0f}",
    )


def _hash_key(key: str, media_type: str) -> bytes:
    return blake2b(f"{media_type} {key}".encode(), digest_size=32).digest()


class BodyStore(Protocol):
    """Where a site keeps the content of large pages, named by its digest; an object store, for example.

    Neither method raises: a store that is down refuses, and the content stays in Redis.
    """

    async def put(self, digest: str, content: bytes) -> bool:
        """Store content, over what has this name already; whether it is stored."""
        ...

    async def get(self, digest: str) -> bytes | None:
        """Return content; None if there is none, or it cannot be read."""
        ...


class SiteContext:
    """What the resources of one site on one store share."""

    def __init__(self, declared: HttpCache[Any], store: Store) -> None:
        self.declared = declared
        needed = "the source that its loaders read from"
        self.source: Any = store.resource(declared, needed) if declared.needs_source else None
        self.windows: BoundWindows[Any] | None = None if declared.windows is None else store[declared.windows]
        self.next_check = 0.0
        """When the windows must be checked again, by `monotonic`."""
        self.hits: dict[str, int] = {}
        """Requests by key since they were last recorded."""
        self.is_ready = False
        """Whether the server announces changes of every resource."""
        self.bodies: BodyStore | None = None
        """Where the content of large pages is, and from how many bytes on."""
        self.max_inline = 0
        self._store = store
        self._prewarm = store[declared.prewarm]
        self._loaders: dict[Resource[Any], PageLoader] = {}
        self._opened_at = 0
        self._is_recording = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def loader(self, resource: Resource[Any]) -> PageLoader:
        """Return the loader of a resource, made once."""
        loader = self._loaders.get(resource)
        if loader is None:
            loader = self._loaders[resource] = PageLoader(resource, self, self._store)
        return loader

    async def ensure_ready(self) -> None:
        """Have all changes announced; shorter prefixes first: a server refuses them after longer ones."""
        if self.is_ready:
            return
        prefixes = {
            resource.cache.keyspace.template.literals[0]: resource for resource in self.declared.resources
        }
        try:
            for _, resource in sorted(prefixes.items(), key=lambda item: len(item[0])):
                await self.loader(resource).engine.ensure_ready()
        except REDIS_ERRORS:
            return  # the next request tries again
        self.is_ready = True

    async def check_windows(self) -> WindowState:
        """Return the state of the windows; at an opening, stop trusting local pages from before it."""
        windows = self.windows
        if windows is None:
            raise RuntimeError(f"{self.declared!r} has no windows")
        state = await windows.now()
        if state.opened_at and state.opened_at != self._opened_at:
            for loader in self._loaders.values():
                if loader.declared.in_window is not None:
                    loader.engine.distrust_local()
        self._opened_at = state.opened_at
        left = state.changes_in
        edge = windows.next_check if left is None else monotonic() + left.total_seconds()
        self.next_check = min(windows.next_check, edge)
        return state

    def count(self, key: str) -> None:
        """Count a request; from the first one on, counts are recorded."""
        if not self._is_recording:
            self._is_recording = True
            self.spawn(self._prewarm.keep_recording(self.hits), "recording requests")
        if key in self.hits or len(self.hits) < _MAX_COUNTED:
            self.hits[key] = self.hits.get(key, 0) + 1

    def drop_older(self, page: Page) -> None:
        """Drop local pages that were replaced in the same step as this one, and are older."""
        for key in page.bumped_with:
            for loader in self._loaders.values():
                entry = loader.engine.peek(key)
                if entry is not None and entry.value is not None and entry.value.number < page.number:
                    loader.engine.drop_local(key)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run something in the background, and log its failure."""
        if len(self._tasks) >= _MAX_TASKS:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (problem := task.exception()) is not None:
                _log.warning("%s: failed in the background", name, exc_info=problem)

        task.add_done_callback(done)

    async def cancel_tasks(self) -> None:
        """Cancel what runs in the background."""
        await cancel_all(self._tasks)


class PageLoader:
    """Loads the pages of one resource on one store."""

    def __init__(self, declared: Resource[Any], context: SiteContext, store: Store) -> None:
        self.declared = declared
        self.cache = store[declared.cache]
        self.engine = cache_engine(self.cache)
        self.clock = store[SERVER_CLOCK]
        self._context = context
        self._render = declared.cache.keyspace.template.render
        self.in_window = declared.in_window
        """The freshness inside of a window, which may be shorter than declared."""
        self._has_windows = declared.in_window is not None
        self._latest = ""  # the largest number seen

    async def load(self, /, **fields: FieldValue) -> Page | None:
        """Return the page of what the loader returns now, its content in the body store if it is large.

        The content is stored before Redis has a pointer to it. That of private pages stays in Redis: a body
        store keeps it for longer than the user may want.
        """
        page = await self._build(fields)
        context = self._context
        if (
            page is not None
            and context.bodies is not None
            and len(page.content) > context.max_inline
            and self.declared.private is None
        ):
            digest = sha256(page.content).hexdigest()
            if await context.bodies.put(digest, page.content):
                page.pointer, page.content = digest, b""
                self.set_freshness(page)  # that may have taken a while
        return page

    async def find(self, fields: Mapping[str, FieldValue], *, with_content: bool) -> Page | None:
        """Return the page, cached or loaded; its content may stay in the body store unless it is wanted."""
        page = await self.cache.get_or_load(self.load, **fields)
        if page is None or not (with_content and page.pointer):
            return page
        return await self._resolved(page) or await self._reload(page, fields)

    async def _reload(self, lost: Page, fields: Mapping[str, FieldValue]) -> Page | None:
        """Replace a page whose content is lost or damaged; callers of all processes share the load."""
        key = self._render(fields)
        _log.warning("%r: its content is lost or damaged; it is loaded", key)
        with suppress(*REDIS_ERRORS):
            if not await self.engine.refresh(
                self.load, lambda page: page.made_at > lost.made_at or not page.pointer, **fields
            ):
                self.engine.drop_local(key)  # Redis has another one
            page = await self.cache.get_or_load(self.load, **fields)
            if page is None or (page := await self._resolved(page)) is not None:
                return page
        return await self._build(fields)

    async def _resolved(self, page: Page) -> Page | None:
        """Return the page with the content that its pointer names; None if the body store has it not."""
        if not page.pointer:
            return page
        bodies = self._context.bodies
        content = None if bodies is None else await bodies.get(page.pointer)
        if content is None or sha256(content).hexdigest() != page.pointer:
            return None
        return msgspec.structs.replace(page, content=content, pointer="")

    async def _build(self, fields: Mapping[str, FieldValue]) -> Page | None:
        declared, representation = self.declared, self.declared.representation
        made_at = (await self._context.check_windows()).time if self._has_windows else self.clock.now()
        value = await declared.load(self._context.source, **fields)
        if value is None:
            return None
        page = build_page(
            self._render(fields),
            value,
            representation.media_type,
            compress_over=representation.compress_over,
            made_at=made_at,
        )
        if page.number <= self._latest:  # the server's time is only known to within a round trip
            page.number = f"{int(self._latest) + 1:016d}"
        self.set_freshness(page)
        return page

    async def refresh(self, /, **fields: FieldValue) -> bool:
        """Load the page unless it is fresh, and from after the opening; whether it was loaded."""
        opened_at = (await self._context.check_windows()).opened_at if self._has_windows else 0
        return await self.engine.refresh(self.load, lambda page: page.made_at >= opened_at, **fields)

    def set_freshness(self, page: Page) -> None:
        """Decide how long a page that is about to be stored is fresh: not past the next opening."""
        declared, windows = self.declared, self._context.windows
        freshness = declared.freshness
        if declared.settled is not None and isinstance(page, _SettledPage):
            freshness = declared.settled
        elif windows is not None and self.in_window is not None:
            freshness = windows.last_known().freshness(freshness, self.in_window)
        page.fresh = round(freshness.fresh.total_seconds() * 1000)
        page.stale = round(freshness.stale.total_seconds() * 1000)

    def note(self, page: Page) -> None:
        """Note the number of a page that was served."""
        self._latest = max(self._latest, page.number)


class BoundResource:
    """A resource of one store: `store[TABLE]`."""

    def __init__(self, declared: Resource[Any], context: SiteContext) -> None:
        self.declared = declared
        self.render = declared.cache.keyspace.template.render
        """Return the key of the page with these fields, given as a mapping."""
        self._context = context
        self._loader = context.loader(declared)
        self._cache, self._engine = self._loader.cache, self._loader.engine
        self._peek = self._engine.peek
        self.stats = self._cache.stats
        self._has_windows = declared.in_window is not None
        self._counts_requests = declared.private is None
        self._wait = declared.site.wait.total_seconds()
        self._headed: BoundedCache[str, None] = BoundedCache(_MAX_REMEMBERED)  # keys whose head was read
        self._backoffs: BoundedCache[str, float] = BoundedCache(_MAX_REMEMBERED)

    def peek(self, key: str) -> Page | None:
        """Return the page of a key if this process has it and may use it: no round trip, next to no work.

        Content that is in a body store stays there: see `pointer`.
        """
        entry = self._peek(key)
        if entry is None or (self._has_windows and monotonic() >= self._context.next_check):
            return None
        self.stats.hits += 1
        page = entry.value
        if self._counts_requests and page is not None:
            hits = self._context.hits
            hits[key] = hits.get(key, 0) + 1
        return page

    async def head(self, key: str) -> EntryHead | None:
        """Return number and stamp of a fresh page that this process does not have, without its payload.

        None: get the page. So it is when the page is stale, and at the second request, to have it locally.
        """
        if key in self._headed or (self._has_windows and (await self._context.check_windows()).is_open):
            return None
        self._headed[key] = None
        try:
            head = await self._engine.read_head(key)
        except REDIS_ERRORS:
            return None
        if head is not None and self._counts_requests:
            self._context.count(key)
        return head

    def accepts(self, fields: Mapping[str, FieldValue]) -> bool:
        """Whether a page with these fields can exist."""
        accepts = self.declared.accepts
        return accepts is None or accepts(**fields)

    def set_in_window(self, freshness: Freshness | None) -> None:
        """Change the freshness inside of windows for pages that this store loads from now on.

        It may be at most as long as declared; None: as declared.
        """
        declared = self.declared.in_window
        if freshness is not None and (
            declared is None or freshness.fresh > declared.fresh or freshness.stale > declared.stale
        ):
            pattern = self.declared.cache.keyspace.pattern
            raise InvalidDeclaration(
                pattern, f"{freshness} is longer than in_window={declared}", "declare the longest one"
            )
        self._loader.in_window = declared if freshness is None else freshness

    def fresh_for(self, page: Page) -> float:
        """Return the seconds for which a page is still fresh; negative when it is stale."""
        windows = self._context.windows if self._has_windows else None
        now = self._loader.clock.now() if windows is None else windows.last_known().time
        return (page.made_at + page.fresh - now) / 1000

    async def page(self, /, **fields: FieldValue) -> Page | None:
        """Return the page, fresh or stale; None when there is no such page.

        `StillLoading` when there is nothing to serve and the load takes longer than the site's `wait`,
        `LoadFailed` when it fails.
        """
        return await self._page(fields, with_content=True) if self.accepts(fields) else None

    async def locate(self, /, **fields: FieldValue) -> Page | None:
        """Return the page as `page` does, but leave content that is in a body store there: see `pointer`."""
        return await self._page(fields, with_content=False) if self.accepts(fields) else None

    async def _page(self, fields: Mapping[str, FieldValue], *, with_content: bool) -> Page | None:
        key = self.render(fields)
        if self._backoffs and (left := self._backoffs.get(key, 0.0) - monotonic()) > 0:
            raise LoadFailed(key, left)
        context = self._context
        try:
            async with asyncio.timeout(self._wait) as limit:
                if not context.is_ready:
                    await context.ensure_ready()
                state = await context.check_windows() if self._has_windows else None
                page = await self._loader.find(fields, with_content=with_content)
        except StoreClosed:
            raise
        except Exception as problem:
            if isinstance(problem, TimeoutError) and limit.expired():
                raise StillLoading(key, self._wait) from None
            self._backoffs[key] = monotonic() + _BACKOFF
            _log.warning("%r: the load has failed", key, exc_info=True)
            raise LoadFailed(key, _BACKOFF) from problem
        if page is None:
            return None
        self._loader.note(page)
        if self._counts_requests:
            context.count(key)
        if page.bumped_with:
            context.drop_older(page)
        if state is not None and page.made_at < state.opened_at:
            context.spawn(self._loader.refresh(**fields), key)
        return page
