"""Prewarming: loading declared and often requested pages before they are requested.

    report = await store[SITE].prewarm()  # PrewarmReport(loaded=4, fresh=12, failed=0)

*Keys.* `prewarm:SITE:leader` is a lock. `prewarm:SITE:hits:{day}` is a sorted set of the most requested pages
of a day by the server's clock, kept for two days: at most ten times `limit` of them, private ones never.

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
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from ephemera.errors import InvalidDeclaration, LockLost, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, Catalogue, Store, fixed
from ephemera.patterns._server_clock import SERVER_CLOCK
from ephemera.patterns.locks import Locks
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.http_cache._declaration import PageRef

RECORD = Script.load("ephemera.patterns.http_cache", "record_requests")

_LEASE = timedelta(seconds=10)
_RECORD_EVERY = 10.0  # seconds
_A_DAY = 86_400_000  # milliseconds
_BATCH = 500  # pages in one record
_CANDIDATES = 10  # times `limit` are kept, so that a new page can rise
_log = logging.getLogger(__name__)


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
