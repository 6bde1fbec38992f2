"""The declaration of a site and its resources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, FieldValue, Store, check_declaration, check_durations
from ephemera.patterns.cache import Cache, Freshness, Loading, LocalCache, Storage
from ephemera.patterns.http_cache._resource import BoundResource, Page
from ephemera.patterns.http_cache._site import BoundHttpCache, Prewarm, site_context
from ephemera.patterns.windows import Windows

S = TypeVar("S")

PrewarmFields: TypeAlias = "Callable[[S], Awaitable[Iterable[Mapping[str, FieldValue]]]]"
"""Given the source, lists the fields of the pages to prewarm."""

_NO_TIME = timedelta(0)
_LOADING = Loading()
_LOCAL = LocalCache(max_entries=2000, max_bytes=16 * 1024 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Representation:
    """The option `representation=Representation(...)` of a resource: how its pages are sent."""

    media_type: str = "application/json"
    """The Content-Type."""
    max_age: timedelta = _NO_TIME
    """How long clients may use a page without asking (Cache-Control)."""
    vary: tuple[str, ...] = ()
    """The request headers that select the page's fields (Vary)."""
    compress_over: int = 1024
    """Pages of more than this many bytes are stored as gzip."""
    private: str | None = None
    """The field that is the id of the user to whom a page belongs; Cache-Control is then `private`."""

    def __post_init__(self) -> None:
        check_durations("Representation", max_age=self.max_age)


_REPRESENTATION = Representation()


class HttpCache(Generic[S]):
    """The declaration of a site: resources of one source, which change together.

    Open the store with `resources={SITE: source}`: the source is the first argument of every loader.

    Args:
        catalogue: The catalogue that declares the keys.
        name: The site's name, part of its keys.
        windows: The windows that resources with `in_window` depend on.
        needs_source: False if the loaders need no source: it is None, and no resource of the store.
        wait: How long a caller waits when there is nothing to serve yet.
        prewarm_rate: Pages that prewarming loads per second, at most.
        prewarm_limit: How many of the most requested pages are prewarmed.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        name: str,
        *,
        windows: Windows[S] | None = None,
        needs_source: bool = True,
        wait: timedelta = timedelta(seconds=2),
        prewarm_rate: float = 20,
        prewarm_limit: int = 100,
    ) -> None:
        check_declaration(catalogue, name, wait=wait)
        if wait <= _NO_TIME:
            raise InvalidDeclaration(name, f"wait={wait} waits for nothing", "give a positive duration")
        self.catalogue = catalogue
        self.name = name
        self.windows = windows
        self.needs_source = needs_source
        self.wait = wait
        self.prewarm = Prewarm(catalogue, name, rate=prewarm_rate, limit=prewarm_limit)
        self.resources: list[Resource[S]] = []

    def resource(
        self,
        pattern: str,
        load: Callable[..., Awaitable[Any]],
        *,
        freshness: Freshness,
        in_window: Freshness | None = None,
        settled: Freshness | None = None,
        missing: timedelta = _NO_TIME,
        accepts: Callable[..., bool] | None = None,
        representation: Representation = _REPRESENTATION,
        prewarm: PrewarmFields[S] | bool = False,
        loading: Loading = _LOADING,
        local: LocalCache = _LOCAL,
        purpose: str,
        invalidated_by: tuple[str, ...] = ("a bump",),
    ) -> Resource[S]:
        """Declare a resource.

        Args:
            pattern: The pattern of its pages' keys.
            load: `await load(source, **fields)` returns bytes, text, what becomes JSON, or None: not found.
            freshness: How long a page is fresh and then stale.
            in_window: The same while a window is open.
            settled: The same, in windows and outside, for content that the loader returns as `Settled`.
            missing: How long to remember that there is no such page.
            accepts: `accepts(**fields)` says whether such a page can exist; for others nothing is looked up,
                loaded or stored. Give it wherever fields come from a URL.
            representation: Media type, Cache-Control, Vary, compression, and whose page it is.
            prewarm: True to prewarm a resource without fields, or what lists the fields of the pages.
            loading: Timeouts, backoff and bounds of loads, as of a `Cache`.
            local: The budget of local entries.
            purpose: What it is for, for the generated documentation.
            invalidated_by: What replaces or removes pages.

        """
        if in_window is not None and self.windows is None:
            raise InvalidDeclaration(
                pattern, "it has a freshness in windows, and its site has none", "give the site windows="
            )
        each_freshness = (freshness, in_window or freshness, settled or freshness)
        cache: Cache[Page] = Cache(
            self.catalogue,
            pattern,
            Page,
            fresh=max(each.fresh for each in each_freshness),
            stale=max(each.stale for each in each_freshness),
            missing=missing,
            freshness_of=_freshness_of,
            loading=loading,
            local=local,
            storage=Storage(codec="msgpack", stamped=True),
            sensitive=representation.private is not None,
            purpose=purpose,
            saves="a load from the source at each request",
            invalidated_by=invalidated_by,
            if_lost="it is loaded again, with the same ETag if its content is the same",
        )
        fields, private = cache.keyspace.template.fields, representation.private
        if private is not None and private not in fields:
            raise InvalidDeclaration(
                pattern, f"private={private!r} is not one of its fields", "name the field with the user's id"
            )
        if prewarm is True and fields:
            raise InvalidDeclaration(
                pattern, f"prewarm=True, and it has the fields {', '.join(fields)}", "list its fields"
            )
        resource = Resource(
            self, cache, load, freshness, in_window, settled, accepts, representation, prewarm
        )
        self.resources.append(resource)
        return resource

    def bind(self, store: Store) -> BoundHttpCache[S]:
        """Return the site of a store that has its catalogue."""
        return BoundHttpCache(self, store)

    def __repr__(self) -> str:
        return f"<HttpCache {self.name!r} of {len(self.resources)} resources>"


@dataclass(frozen=True, slots=True, eq=False)
class Resource(Generic[S]):
    """One resource of a site: made by `HttpCache.resource`."""

    site: HttpCache[S]
    cache: Cache[Page]
    load: Callable[..., Awaitable[Any]]
    freshness: Freshness
    in_window: Freshness | None
    settled: Freshness | None
    accepts: Callable[..., bool] | None
    representation: Representation
    prewarm: PrewarmFields[S] | bool

    @property
    def private(self) -> str | None:
        """The field that is the id of the user to whom a page belongs."""
        return self.representation.private

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of its fields."""
        return self.cache.keyspace.template.fields

    def at(self, /, **fields: FieldValue) -> PageRef:
        """Name one of its pages, for `bump` and `delete`."""
        return PageRef(self, self.cache.keyspace.template.render(fields), fields)

    def bind(self, store: Store) -> BoundResource:
        """Return the resource of a store that has its catalogue."""
        return BoundResource(self, site_context(store[self.site]))

    def __repr__(self) -> str:
        return f"<Resource {self.cache.keyspace.pattern!r} of {self.site.name}>"


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page by its resource and fields: made by `Resource.at`."""

    resource: Resource[Any]
    key: str
    fields: Mapping[str, FieldValue]


def _freshness_of(page: Page) -> Freshness | None:
    if page.fresh <= 0:
        return None
    return Freshness(fresh=timedelta(milliseconds=page.fresh), stale=timedelta(milliseconds=page.stale))
