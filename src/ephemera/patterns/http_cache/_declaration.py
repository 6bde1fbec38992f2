"""The declaration of a site and its resources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, FieldValue, Store, check_declaration, check_durations
from ephemera.patterns.cache import Cache, Local
from ephemera.patterns.http_cache._pages import Page
from ephemera.patterns.http_cache._runtime import BoundResource
from ephemera.patterns.http_cache._site import BoundHttpCache
from ephemera.patterns.prewarm import Prewarm
from ephemera.patterns.windows import Life, Windows

S = TypeVar("S")

_NO_TIME = timedelta(0)
_COPIES = Local(entries=2000, bytes=16 * 1024 * 1024)


class HttpCache(Generic[S]):
    """The declaration of a site: resources of one source, which change together.

    `wait` is how long a caller waits where nothing is there yet. `windows` are needed by resources that live
    otherwise `inside`. Prewarming loads `warm_rate` pages a second at most, of the resources that say so and
    of the `most_warmed` most requested.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        name: str,
        *,
        windows: Windows[S] | None = None,
        wait: timedelta = timedelta(seconds=2),
        warm_rate: float = 20,
        most_warmed: int = 100,
    ) -> None:
        check_declaration(catalogue, name, wait=wait)
        if wait <= _NO_TIME:
            raise InvalidDeclaration(name, f"wait={wait} waits for nothing", "give a positive duration")
        self.catalogue = catalogue
        self.name = name
        self.windows = windows
        self.wait = wait
        self.prewarm = Prewarm(catalogue, name, rate=warm_rate, most=most_warmed)
        self.resources: list[Resource[S]] = []

    def resource(
        self,
        pattern: str,
        load: Callable[..., Awaitable[Any]],
        *,
        life: Life,
        inside: Life | None = None,
        missing: timedelta = _NO_TIME,
        private: str | None = None,
        media_type: str = "application/json",
        max_age: timedelta = _NO_TIME,
        vary: tuple[str, ...] = (),
        compress_over: int = 1024,
        warm: Callable[[S], Awaitable[Iterable[Mapping[str, FieldValue]]]] | bool = False,
        hard_timeout: timedelta = timedelta(seconds=30),
        backoff: timedelta = timedelta(seconds=5),
        local: Local = _COPIES,
        hash_tag: str | None = None,
        purpose: str,
        saves: str = "a load from the source at each request",
        invalidated_by: tuple[str, ...] = ("a bump",),
    ) -> Resource[S]:
        """Declare a resource: `await load(source, **fields)` gives bytes, text or what becomes JSON, or None.

        It lives for `life`, inside a window for `inside`; that there is none is remembered for `missing`.
        `private` names the field that is the user it belongs to. Clients may use a page for `max_age` without
        asking. `vary` names the request headers that its fields are chosen by. Above `compress_over` bytes it
        is stored under gzip. `warm` has it prewarmed: True for one without fields, or what gives its fields.
        """
        check_durations(pattern, max_age=max_age)
        if inside is not None and self.windows is None:
            raise InvalidDeclaration(
                pattern, "it has a life inside of windows, and its site has none", "give the site windows="
            )
        lives = (life, inside or life)
        cache: Cache[Page] = Cache(
            self.catalogue,
            pattern,
            Page,
            fresh=max(each.fresh for each in lives),
            stale=max(each.stale for each in lives),
            missing=missing,
            fresh_of=lambda page: timedelta(milliseconds=page.fresh),
            stale_of=lambda page: timedelta(milliseconds=page.stale),
            hard_timeout=hard_timeout,
            backoff=backoff,
            local=local,
            stamped=True,
            codec="msgpack",
            hash_tag=hash_tag,
            sensitive=private is not None,
            purpose=purpose,
            saves=saves,
            invalidated_by=invalidated_by,
            if_lost="it is loaded again, with the same ETag if it is the same",
        )
        fields = cache.space.template.fields
        if private is not None and private not in fields:
            raise InvalidDeclaration(
                pattern, f"private={private!r} is none of its fields", "name the field that is the user's id"
            )
        if warm is True and fields:
            raise InvalidDeclaration(
                pattern, f"warm=True, and it has the fields {', '.join(fields)}", "give what lists its fields"
            )
        resource = Resource(
            self, cache, load, life, inside, private, media_type, max_age, vary, compress_over, warm
        )
        self.resources.append(resource)
        return resource

    def bind(self, store: Store) -> BoundHttpCache[S]:
        """The site of a store that has its catalogue."""
        return BoundHttpCache(self, store)

    def __repr__(self) -> str:
        return f"<HttpCache {self.name!r} of {len(self.resources)} resources>"


@dataclass(frozen=True, slots=True, eq=False)
class Resource(Generic[S]):
    """One resource of a site: made by `HttpCache.resource`."""

    site: HttpCache[S]
    cache: Cache[Page]
    load: Callable[..., Awaitable[Any]]
    life: Life
    inside: Life | None
    private: str | None
    media_type: str
    max_age: timedelta
    vary: tuple[str, ...]
    compress_over: int
    warm: Callable[[S], Awaitable[Iterable[Mapping[str, FieldValue]]]] | bool

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of its fields."""
        return self.cache.space.template.fields

    def at(self, /, **fields: FieldValue) -> Target:
        """One of its pages, for `bump` and `forget`."""
        return Target(self, self.cache.space.template.render(fields), fields)

    def bind(self, store: Store) -> BoundResource:
        """The resource of a store that has its catalogue."""
        return BoundResource(self, store[self.site], store)

    def __repr__(self) -> str:
        return f"<Resource {self.cache.space.pattern!r} of {self.site.name}>"


@dataclass(frozen=True, slots=True)
class Target:
    """A page by its resource and fields."""

    resource: Resource[Any]
    key: str
    fields: Mapping[str, FieldValue]
