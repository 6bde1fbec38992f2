"""Prewarming: load pages before they are asked for, those that a site declares and the most requested.

    report = await store[SITE].prewarm()     # Report(loaded=4, fresh=12, failed=0), or None: another does it

Keys: `prewarm:SITE:leader`, a lock; `prewarm:SITE:hits:{day}`, a sorted set of the most requested pages of a
day by the server's clock, two days, at most ten times `most` of them, private ones never.
One leader: who does not get the lock leaves it to the one that has it. Resumable: what is fresh is not loaded
again, so who comes after a leader that died loads the rest. Light: at most `rate` loads a second, one at
a time, through the cache, so that a page that is being loaded for a request is not loaded twice.
A page that fails is logged and passed over; the others are warmed.
Atomic: a batch of hits is one script, which also trims the record. Hits are counted in the process, and
recorded every ten seconds: a crash loses those of the last ten.
Down or hung: `run` raises `ConnectionFailed`, and hits are kept in the process, up to a bound. Evicting: a
lost record means fewer pages are warmed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from ephemera.errors import InvalidDeclaration, LockLost
from ephemera.keyspace import REDIS_ERRORS, Catalogue, Store, fixed
from ephemera.patterns.cache._entries import CLOCK
from ephemera.patterns.locks import Locks
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.http_cache._declaration import Target

RECORD = Script.load("ephemera.patterns.prewarm", "record")

_LEASE = timedelta(seconds=10)
_EVERY = 10.0  # seconds from one record of hits to the next
_A_DAY = 86_400_000  # milliseconds
_MOST_AT_ONCE = 500  # pages in one record
_CANDIDATES = 10  # times `most` are kept, so that a newcomer can rise
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run."""

    loaded: int
    fresh: int
    failed: int


class Warming(NamedTuple):
    """What a run is given: what to warm, and how; True when it had to be loaded."""

    targets: Callable[[], Awaitable[Iterable[Target]]]
    warm: Callable[[Target], Awaitable[bool]]


class Prewarm:
    """The declaration of a site's prewarming, made by `HttpCache`."""

    def __init__(self, catalogue: Catalogue, name: str, *, rate: float, most: int) -> None:
        if rate <= 0 or most < 0:
            raise InvalidDeclaration(
                name, f"warm_rate={rate}, most_warmed={most}", "give a positive rate, and most_warmed >= 0"
            )
        self.name, self.rate, self.most = name, rate, most
        self.leader = Locks(
            catalogue, f"prewarm:{name}:leader", lease=_LEASE, purpose="One process prewarms at a time"
        )
        self.hits = catalogue.sorted_set(
            f"prewarm:{name}:hits:{{day}}",
            str,
            lifetime=fixed(days=2),
            purpose="The pages that were asked for most, of each day",
            saves="the first load after a quiet time",
            if_lost="fewer pages are prewarmed",
        )

    def bind(self, store: Store) -> BoundPrewarm:
        """The prewarming of a store that has its catalogue."""
        return BoundPrewarm(self, store)


class BoundPrewarm:
    """The prewarming of one store."""

    def __init__(self, declared: Prewarm, store: Store) -> None:
        self._declared = declared
        self._locks = store[declared.leader]
        self._hits = store[declared.hits]
        self._run = store.client("cache").run
        self._clock = store[CLOCK]
        self._life = str(declared.hits.lifetime.milliseconds)

    async def run(self, warming: Warming) -> Report | None:
        """Warm what there is to warm; None when another process does."""
        try:
            async with self._locks.try_hold() as held:
                return None if held is None else await self._warm(warming)
        except LockLost:
            _log.warning("prewarming %s: the lock was lost; another goes on", self._declared.name)
            return None

    async def most_requested(self) -> list[str]:
        """The keys asked for most today and yesterday, most first."""
        most, day = self._declared.most, self._day()
        if not most:
            return []
        found: dict[str, float] = {}
        for each in await asyncio.gather(*(self._hits.highest(most, day=day - ago) for ago in (0, 1))):
            for key, times in each:
                found[key] = found.get(key, 0.0) + times
        return sorted(found, key=lambda key: -found[key])[:most]

    async def record(self, hits: dict[str, int]) -> None:
        """Add to the record what was counted, and begin to count anew."""
        if not hits or not self._declared.most:
            hits.clear()
            return
        counted = sorted(hits.items(), key=lambda item: -item[1])[:_MOST_AT_ONCE]
        pairs = [word for key, times in counted for word in (times, key)]
        keep = self._declared.most * _CANDIDATES
        await self._run(RECORD, (self._hits.key(day=self._day()),), (self._life, keep, *pairs))
        hits.clear()  # what was counted during the trip goes with it: a record, not an account

    async def keep_recording(self, hits: dict[str, int]) -> None:
        """Record what is counted, every ten seconds."""
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await self.record(hits)
            except REDIS_ERRORS:
                continue  # they are counted on, and recorded when the server is back

    async def _warm(self, warming: Warming) -> Report:
        loaded = fresh = failed = 0
        for target in await warming.targets():
            began = monotonic()
            try:
                if not await warming.warm(target):
                    fresh += 1
                    continue
                loaded += 1
            except REDIS_ERRORS:
                raise  # the server is away: there is nothing to warm
            except Exception:
                failed += 1
                _log.warning("prewarming %r has failed", target.key, exc_info=True)
            await asyncio.sleep(max(0.0, began + 1 / self._declared.rate - monotonic()))
        return Report(loaded, fresh, failed)

    def _day(self) -> int:
        return int(self._clock.now() // _A_DAY)
