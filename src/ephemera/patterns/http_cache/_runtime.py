"""A resource of one store: a copy where there is one, otherwise the page by its cache, within a time."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

from ephemera.errors import LoadFailed, StillLoading, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Store
from ephemera.patterns.cache._entries import CLOCK
from ephemera.patterns.cache._two_level_store import Head
from ephemera.patterns.http_cache._pages import Page, make_page

if TYPE_CHECKING:
    from ephemera.patterns.http_cache._declaration import Resource
    from ephemera.patterns.http_cache._site import BoundHttpCache

_REST = 1.0  # seconds in which a load that failed, with nothing to serve, is not repeated
_MOST_RESTS = 10_000
_log = logging.getLogger("ephemera.patterns.http_cache")


class BoundResource:
    """What `store[TABLE]` gives."""

    def __init__(self, declared: Resource[Any], site: BoundHttpCache[Any], store: Store) -> None:
        self.declared = declared
        self.site = site
        self.cache = store[declared.cache]
        self.render = declared.cache.space.template.render
        self._copy_of = self.cache.copy_of
        self._clock = store[CLOCK]
        self._latest = ""  # the largest number seen
        self._windowed = declared.inside is not None
        self._counted = declared.private is None
        self._wait = declared.site.wait.total_seconds()
        self._headed: set[str] = set()
        self._rests: dict[str, float] = {}
        site.live[declared] = self

    def peek(self, key: str) -> Page | None:
        """The page of a key if this process may use its copy now; no trip, and next to no work."""
        copy = self._copy_of(key)
        if copy is None or (self._windowed and monotonic() >= self.site.look_at):
            return None
        self.cache.stats.hits += 1
        if self._counted:
            hits = self.site.hits
            hits[key] = hits.get(key, 0) + 1
        return copy.value

    async def head(self, key: str) -> Head | None:
        """The number and stamp of a fresh page that is not here yet, without its payload.

        None: ask for the page, as when it is stale, or asked for again, so that there is to be a copy.
        """
        seen = self._headed
        if key in seen or (self._windowed and (await self.site.look()).is_open):
            return None
        if len(seen) >= _MOST_RESTS:
            seen.clear()
        seen.add(key)
        try:
            head = await self.cache.head(key)
        except REDIS_ERRORS:
            return None
        if head is not None and self._counted:
            self.site.count(key)
        return head

    def fresh_for(self, page: Page) -> float:
        """Seconds for which a page is fresh yet."""
        windows = self.site.windows
        now = self._clock.now() if windows is None or not self._windowed else windows.last_seen().moment
        return (page.made + page.fresh - now) / 1000

    async def page(self, /, **fields: FieldValue) -> Page | None:
        """The page, fresh or stale; None when there is no such thing.

        `StillLoading` when nothing is there and its load takes longer than the site's `wait`, `LoadFailed`
        when it fails.
        """
        key = self.render(fields)
        if self._rests and (left := self._rests.get(key, 0.0) - monotonic()) > 0:
            raise LoadFailed(key, left)
        try:
            async with asyncio.timeout(self._wait) as limit:
                if not self.site.is_ready:
                    await self.site.get_ready()
                now = await self.site.look() if self._windowed else None
                page = await self.cache.get_or_load(self.load, **fields)
        except StoreClosed:
            raise
        except Exception as problem:
            if isinstance(problem, TimeoutError) and limit.expired():
                raise StillLoading(key, self._wait) from None
            self._rest(key)
            _log.warning("%r: its load has failed", key, exc_info=True)
            raise LoadFailed(key, _REST) from problem
        if page is None:
            return None
        self._latest = max(self._latest, page.number)
        if self._counted:
            self.site.count(key)
        if page.together:
            self.site.forget_older(page)
        if now is not None and page.made < now.opened:
            self.site.spawn(self.warm(**fields), key)
        return page

    async def warm(self, /, **fields: FieldValue) -> bool:
        """Load the page unless it is fresh, and from after the opening; whether it was loaded."""
        opened = (await self.site.look()).opened if self._windowed else 0
        return await self.cache.renew(self.load, lambda page: page.made >= opened, **fields)

    async def load(self, /, **fields: FieldValue) -> Page | None:
        """The page of what the loader gives now."""
        declared = self.declared
        made = (await self.site.look()).moment if self._windowed else self._clock.now()
        value = await declared.load(self.site.source, **fields)
        if value is None:
            return None
        size = declared.compress_over
        page = make_page(self.render(fields), value, declared.media_type, compress_over=size, made=made)
        if page.number <= self._latest:  # the server's time is known here only as well as its answers travel
            page.number = f"{int(self._latest) + 1:016d}"
        self.give_life(page)
        return page

    def give_life(self, page: Page) -> None:
        """Decide how long a page lives that is about to be stored: not past the next opening."""
        life, windows = self.declared.life, self.site.windows
        if windows is not None and self.declared.inside is not None:
            life = windows.last_seen().life(life, self.declared.inside)
        page.fresh = round(life.fresh.total_seconds() * 1000)
        page.stale = round(life.stale.total_seconds() * 1000)

    def _rest(self, key: str) -> None:
        if len(self._rests) >= _MOST_RESTS:
            self._rests.clear()
        self._rests[key] = monotonic() + _REST
