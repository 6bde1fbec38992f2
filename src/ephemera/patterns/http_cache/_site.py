"""A site of one store: pages that are replaced together, and pages that are loaded before they are requested.

    report = await store[SITE].prewarm()  # PrewarmReport(loaded=4, fresh=12, failed=0)

*Keys of prewarming.* `prewarm:SITE:leader` is a lock. `prewarm:SITE:hits:{day}` is a sorted set of the most
requested pages of a day by the server's clock, kept for two days: at most ten times `limit` of them, private
ones never.

One process prewarms at a time; in the others `prewarm` returns None. What is fresh is not loaded again, so
after a leader that died the next one loads the rest. At most `rate` loads per second run, one at a time and
through the cache, so a page that is being loaded for a request is not loaded twice. A page that fails is
logged and skipped.

*Atomicity.* A batch of requests is recorded by one script, which also trims the record. Requests are counted
in the process and recorded every ten seconds: a crash loses those of the last ten.

*When Redis is down*, `run` raises `ConnectionFailed`, and requests stay counted in the process, up to a
bound. If a record is evicted, fewer pages are prewarmed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ephemera.errors import EphemeraError, InvalidDeclaration, LoadTimeout, LockLost, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, Catalogue, Store, fixed
from ephemera.patterns._server_clock import SERVER_CLOCK
from ephemera.patterns.cache import EntryGroup, GroupMember
from ephemera.patterns.http_cache._resource import BodyStore, Page, PageLoader, SiteContext
from ephemera.patterns.locks import Locks
from ephemera.patterns.windows import BoundWindows
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.http_cache._declaration import HttpCache, PageRef


RECORD = Script.load("ephemera.patterns.http_cache", "record_requests")

_LEASE = timedelta(seconds=10)
_RECORD_EVERY = 10.0  # seconds
_A_DAY = 86_400_000  # milliseconds
_BATCH = 500  # pages in one record
_CANDIDATES = 10  # times `limit` are kept, so that a new page can rise

S = TypeVar("S")

_ATTEMPTS = 5
_log = logging.getLogger("ephemera.patterns.http_cache")


@dataclass(frozen=True, slots=True)
class PrewarmReport:
    """The result of a run: pages that were loaded, were fresh already, or failed."""

    loaded: int
    fresh: int
    failed: int


class Prewarm:
    """The declaration of a site's prewarming, made by `HttpCache`."""

    def __init__(self, catalogue: Catalogue, name: str, *, rate: float, limit: int) -> None:
        if rate <= 0 or limit < 0:
            raise InvalidDeclaration(
                name,
                f"prewarm_rate={rate}, prewarm_limit={limit}",
                "give a positive rate, and prewarm_limit >= 0",
            )
        self.name, self.rate, self.limit = name, rate, limit
        self.leader = Locks(
            catalogue, f"prewarm:{name}:leader", lease=_LEASE, purpose="One process prewarms at a time"
        )
        self.hits = catalogue.sorted_set(
            f"prewarm:{name}:hits:{{day}}",
            str,
            lifetime=fixed(days=2),
            purpose="The most requested pages of each day",
            saves="the first load after a quiet time",
            if_lost="fewer pages are prewarmed",
        )
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundPrewarm:
        """Return the prewarming of a store that has its catalogue."""
        return BoundPrewarm(self, store)


class BoundPrewarm:
    """The prewarming of one store."""

    def __init__(self, declared: Prewarm, store: Store) -> None:
        self._declared = declared
        self._leader = store[declared.leader]
        self._hits = store[declared.hits]
        self._run = store.client("cache").run
        self._clock = store[SERVER_CLOCK]
        self._lifetime = str(declared.hits.lifetime.milliseconds)

    async def run(
        self,
        list_pages: Callable[[], Awaitable[Iterable[PageRef]]],
        refresh: Callable[[PageRef], Awaitable[bool]],
    ) -> PrewarmReport | None:
        """Refresh all listed pages; None when another process does."""
        try:
            async with self._leader.try_hold() as held:
                return None if held is None else await self._refresh_all(await list_pages(), refresh)
        except LockLost:
            _log.warning("prewarming %s: the lock was lost; another process continues", self._declared.name)
            return None

    async def most_requested(self) -> list[str]:
        """Return the keys of the most requested pages of today and yesterday, most first."""
        limit, day = self._declared.limit, self._day()
        if not limit:
            return []
        found: dict[str, float] = {}
        for each in await asyncio.gather(*(self._hits.highest(limit, day=day - ago) for ago in (0, 1))):
            for key, times in each:
                found[key] = found.get(key, 0.0) + times
        return sorted(found, key=lambda key: -found[key])[:limit]

    async def record(self, hits: dict[str, int]) -> None:
        """Add what was counted to the record, and reset the counts."""
        if not hits or not self._declared.limit:
            hits.clear()
            return
        counted = sorted(hits.items(), key=lambda item: -item[1])[:_BATCH]
        pairs = [word for key, times in counted for word in (times, key)]
        keep = self._declared.limit * _CANDIDATES
        await self._run(RECORD, (self._hits.key(day=self._day()),), (self._lifetime, keep, *pairs))
        hits.clear()  # loses what was counted during the round trip: an estimate is enough

    async def keep_recording(self, hits: dict[str, int]) -> None:
        """Record what is counted, every ten seconds."""
        while True:
            await asyncio.sleep(_RECORD_EVERY)
            try:
                await self.record(hits)
            except REDIS_ERRORS:
                continue  # they stay counted, and are recorded when Redis is back

    async def _refresh_all(
        self, pages: Iterable[PageRef], refresh: Callable[[PageRef], Awaitable[bool]]
    ) -> PrewarmReport:
        loaded = fresh = failed = 0
        for page in pages:
            began = monotonic()
            try:
                if not await refresh(page):
                    fresh += 1
                    continue
                loaded += 1
            except (*REDIS_ERRORS, StoreClosed):
                raise  # without Redis there is nothing to prewarm
            except Exception:
                failed += 1
                _log.warning("prewarming %r has failed", page.key, exc_info=True)
            await asyncio.sleep(max(0.0, began + 1 / self._declared.rate - monotonic()))
        return PrewarmReport(loaded, fresh, failed)

    def _day(self) -> int:
        return int(self._clock.now() // _A_DAY)


class BoundHttpCache(Generic[S]):
    """A site of one store: `store[SITE]`."""

    def __init__(self, declared: HttpCache[S], store: Store) -> None:
        self.declared = declared
        self._context = SiteContext(declared, store)
        self._store = store
        self._prewarm = store[declared.prewarm]
        store.before_close(self._close)

    @property
    def windows(self) -> BoundWindows[S] | None:
        """Its windows, if it has any."""
        return self._context.windows

    def store_bodies_in(self, bodies: BodyStore, *, over: int) -> None:
        """Keep content of more than `over` bytes, as compressed, in a body store, with a pointer in Redis.

        Private pages stay in Redis. A process without the body store loads a page that it finds as a pointer.
        """
        self._context.bodies, self._context.max_inline = bodies, over

    async def bump(self, /, *pages: PageRef) -> None:
        """Reload these pages and replace them in one step; call it after the commit.

        All or none are replaced. It raises what a loader raises, and then nothing has changed, or
        `ConnectionFailed`: repeat it.
        """
        await self._context.ensure_ready()
        await self._bump(pages)

    @asynccontextmanager
    async def changing(self, /, *pages: PageRef) -> AsyncIterator[None]:
        """Commit inside of the block; these pages are bumped at its end.

        Unlike with `bump` alone, no other load stores one of them between the commit and the bump, so not
        even for a moment one of them has the change and another has not. `ConnectionFailed` before the block
        is entered: do not commit; after it: call `bump`. When the block raises, nothing is bumped.
        """
        await self._context.ensure_ready()
        async with self._group(pages).claimed():
            yield
            await self._bump(pages)

    async def delete(self, /, *pages: PageRef) -> None:
        """Remove these pages in one step; the next request loads them."""
        await self._group(pages).delete()

    async def prewarm(self) -> PrewarmReport | None:
        """Load what is missing, stale or from before the window; None when another process does so."""
        return await self._prewarm.run(self._pages_to_prewarm, self._refresh)

    def prewarm_at_openings(self) -> None:
        """Prewarm at every opening of a window, from now until the store is closed."""
        if self._context.windows is None:
            raise RuntimeError(f"{self.declared!r} has no windows whose openings could be waited for")
        self._context.spawn(self._prewarm_at_openings(), "prewarming at openings")

    def prewarm_in_background(self) -> None:
        """Prewarm until the store is closed at the latest; the log reports the result."""
        self._context.spawn(self._prewarm_and_log(), f"prewarming {self.declared.name}")

    # Bumps.

    async def _bump(self, refs: Iterable[PageRef]) -> None:
        """Load and store pages; if later bumps keep winning, delete them instead."""
        pages = _each_once(refs)
        if not pages:
            return
        group = self._group(pages)
        try:
            for _ in range(_ATTEMPTS):
                async with group.claimed() as token:
                    loaded = await self._load(pages)
                if await group.fill(token, loaded):
                    return
        finally:
            group.drop_local()  # also when Redis is down: this process then loads the current content
        await group.delete()

    def _group(self, refs: Iterable[PageRef]) -> EntryGroup:
        members = [
            GroupMember(
                self._context.loader(page.resource).engine,
                page.resource.cache.entry_keys(page.key, page.fields),
            )
            for page in _each_once(refs)
        ]
        return EntryGroup(self._store, members)

    async def _load(self, refs: list[PageRef]) -> list[Page | None]:
        """Load pages concurrently; the first error cancels the others."""
        loaders = [self._context.loader(page.resource) for page in refs]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_load_within_timeout(*each)) for each in zip(loaders, refs, strict=True)
                ]
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None
        pages = [task.result() for task in tasks]
        keys = [page.key for page in refs] if len(refs) > 1 else []
        for loader, page in zip(loaders, pages, strict=True):
            if page is not None:
                page.bumped_with = keys
                loader.set_freshness(page)  # the other loads may have taken a while
        return pages

    # Prewarming.

    async def _pages_to_prewarm(self) -> list[PageRef]:
        """List the declared pages, then the most requested ones."""
        found: dict[str, PageRef] = {}
        for resource in self.declared.resources:
            if resource.prewarm is True:
                page = resource.at()
                found[page.key] = page
            elif resource.prewarm:
                for fields in await resource.prewarm(self._context.source):
                    page = resource.at(**fields)
                    found[page.key] = page
        for key in await self._prewarm.most_requested():
            for resource in self.declared.resources:
                parsed = None if resource.private else resource.cache.keyspace.parse(key)
                if parsed is not None and key not in found:
                    found[key] = resource.at(**parsed)
        return list(found.values())

    async def _prewarm_and_log(self) -> None:
        try:
            report = await self.prewarm()
        except StoreClosed:
            return  # an orderly stop
        except EphemeraError as problem:
            _log.warning("prewarming %s failed: %s", self.declared.name, problem)
        else:
            if report is not None:
                _log.info("prewarmed %s: %s", self.declared.name, report)

    async def _refresh(self, page: PageRef) -> bool:
        return await self._context.loader(page.resource).refresh(**page.fields)

    async def _prewarm_at_openings(self) -> None:
        prewarmed_at = 0
        while True:
            state = await self._context.check_windows()
            if state.opened_at != prewarmed_at:
                try:
                    await self.prewarm()
                    prewarmed_at = state.opened_at
                except StoreClosed:
                    return
                except REDIS_ERRORS:
                    _log.warning("prewarming %s: Redis is unavailable", self.declared.name)
                except Exception:  # listing the pages failed, which may be different next time
                    _log.warning("prewarming %s has failed", self.declared.name, exc_info=True)
            await asyncio.sleep(max(0.05, self._context.next_check - monotonic()))

    async def _close(self) -> None:
        await self._context.cancel_tasks()
        try:
            await self._prewarm.record(self._context.hits)
        except EphemeraError:
            return  # a record of requests may be lost


def site_context(site: BoundHttpCache[Any]) -> SiteContext:
    """Return what the site shares with its resources."""
    return site._context


def _each_once(pages: Iterable[PageRef]) -> list[PageRef]:
    return list({page.key: page for page in pages}.values())


async def _load_within_timeout(loader: PageLoader, page: PageRef) -> Page | None:
    seconds = page.resource.cache.loading.hard_timeout.total_seconds()
    try:
        async with asyncio.timeout(seconds) as limit:
            return await loader.load(**page.fields)
    except TimeoutError:
        if limit.expired():
            raise LoadTimeout(page.key, seconds) from None
        raise
