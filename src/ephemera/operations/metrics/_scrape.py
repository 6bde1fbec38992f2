"""The background task that asks what a scrape may not: every so often, each source by itself.

A source that does not answer keeps its last sample, whose age then grows; the others are not held up. A
source that is gone, such as a node that left its cluster, takes its sample with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from ephemera.keyspace import Store
from ephemera.operations.metrics._families import SAMPLE_AGE, SAMPLE_FAILURES, Sample
from ephemera.operations.metrics._server_metrics import Asking

if TYPE_CHECKING:
    from ephemera.operations.metrics._server_metrics import Source

log = logging.getLogger("ephemera.metrics")

_PATIENCE = 5.0  # seconds that one source may take


class _Taken(NamedTuple):
    sort: str
    at: float  # by `monotonic`
    samples: list[Sample]


class Sampler:
    """The last sample of every source of a store."""

    def __init__(self, store: Store, every: float) -> None:
        self._asking = Asking(store)
        self._every = every
        self._taken: dict[object, _Taken] = {}
        self._failures: Counter[str] = Counter()
        self._failing: set[object] = set()
        self._round = asyncio.Lock()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ephemera-metrics")

    def samples(self) -> Iterator[Sample]:
        """What was sampled last, and how old it is."""
        oldest: dict[str, float] = {}
        for sort, at, samples in list(self._taken.values()):
            oldest[sort] = min(at, oldest.get(sort, at))
            yield from samples
        now = monotonic()
        for sort, at in oldest.items():
            yield Sample(SAMPLE_AGE, (sort,), now - at)
            yield Sample(SAMPLE_FAILURES, (sort,), self._failures[sort])
        for sort in self._failures.keys() - oldest.keys():
            yield Sample(SAMPLE_FAILURES, (sort,), self._failures[sort])

    async def sample(self) -> None:
        """Ask every source now."""
        async with self._round:
            sources = {id(source.which): source for source in self._asking.sources()}
            for gone in self._taken.keys() - sources.keys():
                del self._taken[gone]
            self._failing &= sources.keys()
            await asyncio.gather(*(self._ask(which, source) for which, source in sources.items()))

    async def aclose(self) -> None:
        """Ask no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.sample()
            except Exception:  # nobody awaits this task; it must not end by a mistake of ours
                log.exception("metrics could not be sampled")
            await asyncio.sleep(self._every)

    async def _ask(self, which: object, source: Source) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                samples = await source.ask()
        except Exception as problem:  # a database's errors are of its driver
            self._failures[source.sort] += 1
            # Once for each time that it begins to fail: whoever reads logs reads it once.
            level = logging.DEBUG if which in self._failing else logging.WARNING
            log.log(level, "metrics of %s could not be sampled: %s", source.sort, problem)
            self._failing.add(which)
        else:
            self._failing.discard(which)
            self._taken[which] = _Taken(source.sort, monotonic(), samples)
