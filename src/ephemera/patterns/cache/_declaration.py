"""The declaration of a cache: its entries, who loads them, the channel of those who wait, and its tags.

An entry, its load and its channel share a cluster slot: one field of the pattern is the hash tag, the last
unless said; beside a pattern without fields they carry a number that leads to its slot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from functools import wraps
from typing import Any, Generic, NamedTuple, TypeVar

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, CodecName, FieldValue, Store, check_async, check_declaration, fixed
from ephemera.patterns.cache._entries import entry_type
from ephemera.patterns.cache._runtime import BoundCache
from ephemera.patterns.local_cache import Local
from ephemera.wire import hash_tag_for_slot, key_slot

V = TypeVar("V")
R = TypeVar("R")

_NO_TIME = timedelta(0)
_LEASE = timedelta(seconds=2)


class Place(NamedTuple):
    """The keys of one entry, as its scripts take them."""

    keys: tuple[str, str]  # the entry, its load
    channel: str


class Cache(Generic[V]):
    """The declaration of a cache: `store[PROFILE]` gives the `BoundCache` of a store.

    An entry is fresh for `fresh`, less up to `jitter` of it, or for what `fresh_of` makes of its value if
    that is less (nothing or less: it is not cached); then it is stale for `stale`, or for what `stale_of`
    makes of its value if that is less: served while a load is under way and when one fails. `missing` is how
    long it is remembered that there is no value.
    Who has a stale entry waits at most `soft_timeout` for a newer one; no load may take longer than
    `hard_timeout`. After a failed load a stale entry is served for `backoff` before the next. `eagerness`
    scales early refreshes, 0 for none. A process runs at most `most_loads` loads at once, and begins no
    refresh in the background while `most_refreshes` are under way. `lease` is how long a dead loader is
    waited for. `local` keeps copies in the process; `tags` names those of a value, given it and its fields.
    `stamped` is for values with a `stamp`, 16 characters that tell contents apart: the server then gives
    their `number`, which grows with every other stamp.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        value_type: type[V],
        *,
        fresh: timedelta,
        stale: timedelta = _NO_TIME,
        missing: timedelta = _NO_TIME,
        fresh_of: Callable[[V], timedelta] | None = None,
        stale_of: Callable[[V], timedelta] | None = None,
        jitter: float = 0.1,
        eagerness: float = 1.0,
        soft_timeout: timedelta = _NO_TIME,
        hard_timeout: timedelta = timedelta(seconds=30),
        backoff: timedelta = timedelta(seconds=5),
        most_loads: int = 32,
        most_refreshes: int = 16,
        lease: timedelta = _LEASE,
        local: Local | None = None,
        tags: Callable[..., Iterable[str]] | None = None,
        stamped: bool = False,
        codec: CodecName | None = None,
        compress_over: int | None = None,
        hash_tag: str | None = None,
        sensitive: bool = False,
        purpose: str,
        saves: str = "a load from the source",
        invalidated_by: tuple[str, ...] = ("a change of the source",),
        if_lost: str = "it is loaded again",
    ) -> None:
        durations = {"fresh": fresh, "hard_timeout": hard_timeout, "backoff": backoff, "lease": lease}
        may_be_none = {"stale": stale, "missing": missing, "soft_timeout": soft_timeout}
        check_declaration(catalogue, pattern, **durations, **may_be_none)
        numbers = {"most_loads": most_loads, "most_refreshes": most_refreshes}
        _check(pattern, durations, may_be_none, numbers, jitter=jitter, eagerness=eagerness)
        self.fresh, self.stale, self.missing = fresh, stale, missing
        self.fresh_of, self.stale_of = fresh_of, stale_of
        self.stamped = stamped
        self.jitter, self.eagerness = jitter, eagerness
        self.soft_timeout, self.hard_timeout, self.backoff = soft_timeout, hard_timeout, backoff
        self.most_loads, self.most_refreshes = most_loads, most_refreshes
        self.lease = lease
        self.local = local
        self.exact = local is not None and local.when_down == "load"
        """Whether nothing older than its copies may be is served, also while the server is away."""
        self.tags = tags
        self.entry: Any = entry_type(value_type)
        self.life = max(fresh, missing) + stale
        self.space = catalogue.value(
            pattern,
            self.entry,
            codec=codec,
            compress_over=compress_over,
            lifetime=fixed(seconds=self.life.total_seconds()),
            purpose=purpose,
            saves=saves,
            invalidated_by=invalidated_by,
            if_lost=if_lost,
            sensitive=sensitive,
            **_tagged(hash_tag or _last_field(pattern)),
        )
        self._declare_companions(catalogue, pattern)
        catalogue.patterns.append(self)

    def _declare_companions(self, catalogue: Catalogue, pattern: str) -> None:
        beside, tagged = pattern, _tagged(self.space.template.hash_tag)
        self._extra: dict[str, FieldValue] = {}
        if not self.space.template.fields:
            self._extra = {"place": hash_tag_for_slot(key_slot(pattern))}
            # Before the pattern, so that `table` and `table:{season}` can be declared side by side.
            beside, tagged = f"{{place}}:{pattern}", {"hash_tag": "place"}
        self.loads = catalogue.value(
            f"loading:{beside}",
            str,
            lifetime=fixed(seconds=max(self.lease, self.backoff).total_seconds()),
            purpose="Who loads an entry; its fill is refused once this is gone or another's",
            saves="the same load by many at once",
            invalidated_by=("the end of the load", "an invalidation"),
            if_lost="the load is not cached, and another may begin",
            **tagged,
        )
        self.loaded = catalogue.channel(
            f"loaded:{beside}",
            str,
            purpose="Wakes those who wait for an entry",
            if_lost="they look when the loader's lease ends",
            **tagged,
        )
        if self.tags is None:
            return
        outlives = fixed(
            seconds=(self.life + self.hard_timeout).total_seconds(), outlives="every entry of the cache"
        )
        name = pattern.replace("{", "").replace("}", "")
        self.clock = catalogue.counter(
            f"tags:{{place}}:{name}",
            lifetime=outlives,
            purpose="The last moment of a cache's tags",
            hash_tag="place",
        )
        self.markers = catalogue.counter(
            f"tags:{{place}}:{name}:{{tag}}",
            lifetime=outlives,
            purpose="When a tag was last ended",
            if_lost="entries that it ended, and nobody has replaced, are served until they end",
            hash_tag="place",
        )

    def bind(self, store: Store) -> BoundCache[V]:
        """The cache of a store that has its catalogue."""
        return BoundCache(self, store)

    def place(self, key: str, fields: Mapping[str, FieldValue]) -> Place:
        """The keys of one entry."""
        every = {**fields, **self._extra}
        return Place((key, self.loads.template.render(every)), self.loaded.template.render(every))

    def cached(self, load: Callable[..., Awaitable[R]], /) -> Callable[..., Coroutine[Any, Any, R]]:
        """Decorate a loader: called with a store and its fields by name, it is asked only when it must be."""
        fields = self.space.template.fields
        form = f"async def load({', '.join(fields)})"
        check_async(self.space.pattern, load, form, **{name: name for name in fields})

        @wraps(load)
        async def through_the_cache(store: Store, /, **fields: FieldValue) -> R:
            found: Any = await store[self].get_or_load(load, **fields)  # type: ignore[arg-type]
            return found  # type: ignore[no-any-return]

        return through_the_cache

    def __repr__(self) -> str:
        return f"<Cache {self.space.pattern!r} of {self.space.catalogue}>"


def _last_field(pattern: str) -> str | None:
    """The field that ends last, if any."""
    return pattern.rpartition("}")[0].rpartition("{")[2] or None


def _tagged(field: str | None) -> Any:
    return {} if field is None else {"hash_tag": field}


def _check(
    pattern: str,
    durations: Mapping[str, timedelta],
    may_be_none: Mapping[str, timedelta],
    numbers: Mapping[str, int],
    **shares: float,
) -> None:
    for name, duration in {**durations, **may_be_none}.items():
        if duration < _NO_TIME or (not duration and name in durations):
            raise InvalidDeclaration(pattern, f"{name}={duration} is no duration", "give a positive one")
    for name, number in numbers.items():
        if number < 1:
            raise InvalidDeclaration(pattern, f"{name}={number} lets nothing happen", "give at least 1")
    if not 0 <= shares["jitter"] < 1 or shares["eagerness"] < 0:
        raise InvalidDeclaration(
            pattern,
            f"jitter={shares['jitter']}, eagerness={shares['eagerness']}",
            "jitter is a part of `fresh` below 1, eagerness 0 or more",
        )
