"""A site of one store: its source, its windows, what changes together, and what is asked for most."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ephemera.errors import EphemeraError
from ephemera.keyspace import REDIS_ERRORS, Store
from ephemera.patterns.http_cache._bump import Changes
from ephemera.patterns.http_cache._pages import Page
from ephemera.patterns.http_cache._runtime import BoundResource
from ephemera.patterns.prewarm import Report, Warming
from ephemera.patterns.windows import BoundWindows, Now

if TYPE_CHECKING:
    from ephemera.patterns.http_cache._declaration import HttpCache, Resource, Target

S = TypeVar("S")

_MOST_HITS = 10_000
_MOST_TASKS = 64
_log = logging.getLogger("ephemera.patterns.http_cache")


class BoundHttpCache(Generic[S]):
    """What `store[SITE]` gives."""

    def __init__(self, declared: HttpCache[S], store: Store) -> None:
        self.declared = declared
        self._store = store
        self._source: tuple[S] | tuple[()] = ()
        self.windows: BoundWindows[S] | None = None if declared.windows is None else store[declared.windows]
        self.look_at = 0.0
        """When the windows must be looked at again, by `monotonic`."""
        self._opened = 0
        self.is_ready = False
        """Whether the server tells of changes of every resource."""
        self.live: dict[Resource[S], BoundResource] = {}
        self.hits: dict[str, int] = {}
        """How often pages were asked for since it was last recorded, by key."""
        self._is_recording = False
        self._prewarm = store[declared.prewarm]
        self._changes = Changes(store)
        self._tasks: set[asyncio.Task[Any]] = set()
        store.before_close(self._finish)

    def using(self, source: S) -> BoundHttpCache[S]:
        """The same, with the source that loaders and windows get."""
        self._source = (source,)
        if self.windows is not None:
            self.windows.using(source)
        return self

    @property
    def source(self) -> S:
        """What loaders get."""
        if not self._source:
            raise RuntimeError(f"{self.declared!r} has no source: call store[...].using(source) first")
        return self._source[0]

    async def bump(self, /, *targets: Target) -> None:
        """Load these pages anew, and change them in one step; call it after the commit.

        All or none change. It raises what a loader raises, and then nothing has changed, or
        `ConnectionFailed`; repeat it.
        """
        if not self.is_ready:
            await self.get_ready()
        await self._changes.bump([(self.of(each.resource), each) for each in targets])

    @asynccontextmanager
    async def changing(self, /, *targets: Target) -> AsyncIterator[None]:
        """Commit inside of the block, and these pages are bumped at its end.

        Other than with `bump` alone, nobody stores one of them between the commit and the bump, so that not
        even for a moment one of them has the change and another has not. `ConnectionFailed` before the block
        is entered: do not commit; after it: call `bump`. When the block raises, nothing is bumped.
        """
        changed = [(self.of(each.resource), each) for each in targets]
        if not self.is_ready:
            await self.get_ready()
        async with self._changes.held(changed):
            yield
            await self._changes.bump(changed)

    async def forget(self, /, *targets: Target) -> None:
        """Remove these pages in one step; whoever asks next waits for their load."""
        await self._changes.forget([(self.of(each.resource), each) for each in targets])

    async def prewarm(self) -> Report | None:
        """Load what is missing, stale or from before the window; None when another process does so."""
        return await self._prewarm.run(Warming(self._targets, self._warm))

    def keep_warm(self) -> None:
        """Prewarm at every opening of a window, from now until the store is closed."""
        if self.windows is None:
            raise RuntimeError(f"{self.declared!r} has no windows whose openings could be waited for")
        self.spawn(self._keep_warm(), "prewarming at openings")

    def of(self, resource: Resource[S]) -> BoundResource:
        """A resource of this store."""
        return self._store[resource]

    async def get_ready(self) -> None:
        """Be told of all changes; shorter prefixes first, since a server refuses longer ones before them."""
        prefixes = {
            resource.cache.space.template.literals[0]: resource for resource in self.declared.resources
        }
        try:
            for _, resource in sorted(prefixes.items(), key=lambda item: len(item[0])):
                await self.of(resource).cache.ready()
        except REDIS_ERRORS:
            return  # later, then
        self.is_ready = True

    async def look(self) -> Now:
        """How the windows stand; copies from before an opening are asked for again."""
        windows = self.windows
        if windows is None:
            raise RuntimeError(f"{self.declared!r} has no windows")
        now = await windows.now()
        if now.opened and now.opened != self._opened:
            for live in self.live.values():
                if live.declared.inside is not None:
                    live.cache.distrust()
        self._opened = now.opened
        left = now.changes_in
        edge = windows.look_at if left is None else monotonic() + left.total_seconds()
        self.look_at = min(windows.look_at, edge)
        return now

    def count(self, key: str) -> None:
        """Count a request that no copy has answered; from the first one on they are recorded."""
        if not self._is_recording:
            self._is_recording = True
            self.spawn(self._prewarm.keep_recording(self.hits), "the record of hits")
        if key in self.hits or len(self.hits) < _MOST_HITS:
            self.hits[key] = self.hits.get(key, 0) + 1

    def forget_older(self, page: Page) -> None:
        """Forget the copies of pages that were changed together with this one, and are older."""
        for key in page.together:
            for live in self.live.values():
                copy = live.cache.copy_of(key)
                if copy is not None and copy.value is not None and copy.value.number < page.number:
                    live.cache.drop(key)

    def spawn(self, work: Coroutine[Any, Any, Any], what: str) -> None:
        """Do something in the background, and say so if it fails."""
        if len(self._tasks) >= _MOST_TASKS:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (problem := task.exception()) is not None:
                _log.warning("%s: failed in the background", what, exc_info=problem)

        task.add_done_callback(done)

    async def _targets(self) -> list[Target]:
        """What is to be warmed: what is declared so, then what was asked for most."""
        found: dict[str, Target] = {}
        for resource in self.declared.resources:
            if resource.warm is True:
                target = resource.at()
                found[target.key] = target
            elif resource.warm:
                for fields in await resource.warm(self.source):
                    target = resource.at(**fields)
                    found[target.key] = target
        for key in await self._prewarm.most_requested():
            for resource in self.declared.resources:
                parsed = None if resource.private else resource.cache.space.parse(key)
                if parsed is not None and key not in found:
                    found[key] = resource.at(**parsed)
        return list(found.values())

    async def _keep_warm(self) -> None:
        warmed = 0
        while True:
            now = await self.look()
            if now.opened != warmed:
                try:
                    await self.prewarm()
                    warmed = now.opened
                except REDIS_ERRORS:
                    _log.warning("prewarming %s: the server is away", self.declared.name)
                except Exception:  # of what lists the pages: another time it may not
                    _log.warning("prewarming %s has failed", self.declared.name, exc_info=True)
            await asyncio.sleep(max(0.05, self.look_at - monotonic()))

    async def _warm(self, target: Target) -> bool:
        return await self.of(target.resource).warm(**target.fields)

    async def _finish(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._prewarm.record(self.hits)
        except EphemeraError:
            return  # a record of hits may be lost
