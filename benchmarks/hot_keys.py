"""The rows of hot keys: what the two answers of docs/operations/hot-keys.md bring.

One entry is read by 50 tasks and changed ten times a second, through local copies and from the server. And
one count is added to by 50 tasks, split over 32 keys and in one, on six masters: the share of the busiest
master in all additions, by the servers' own statistics. An even load would be 17 %.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from itertools import count

from benchmarks.load import Tasks
from benchmarks.rows import Absolute, Opener, Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Cache, Catalogue, Store, connect, embedded, fixed
from ephemera.patterns.cache import LocalCache

_TASKS = 50
_HOUR = timedelta(hours=1)
_EVERY = 0.1  # seconds between changes of the entry
_MASTERS = 6
_PARTS = 32
_PATIENT = "?timeout=10&connect_timeout=30"

CATALOGUE = Catalogue("bench-hot")
LOCAL: Cache[str] = Cache(
    CATALOGUE, "hot:local:{page}", str, fresh=_HOUR, local=LocalCache(), purpose="Read through local copies"
)
REMOTE: Cache[str] = Cache(CATALOGUE, "hot:remote:{page}", str, fresh=_HOUR, purpose="Read from the server")
VIEWS = CATALOGUE.counter("hot:views:{video}:{part}", lifetime=fixed(hours=1), purpose="A count in parts")


async def _load(page: str) -> str:
    return f"the page {page}"


def reads(cache: Cache[str]) -> Opener:
    """One entry, read by all tasks while another client changes it."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        url = servers.valkey.url + _PATIENT
        async with connect(url, CATALOGUE) as store, connect(url, CATALOGUE) as editor:
            read = store[cache].get_or_load
            changing = asyncio.create_task(_change(editor, cache))

            async def work(times: int) -> None:
                for _ in range(times):
                    await read(_load, page="front")

            yield Tasks(_TASKS, work)
            changing.cancel()
            with suppress(asyncio.CancelledError):
                await changing

    return opened


async def _change(editor: Store, cache: Cache[str]) -> None:
    for version in count():
        await editor[cache].put(f"version {version}", page="front")
        await asyncio.sleep(_EVERY)


def additions(parts: int) -> Opener:
    """The busiest master's share of all additions to a count, in percent."""

    @asynccontextmanager
    async def opened(_: Servers) -> AsyncIterator[Round]:
        with embedded.cluster(masters=_MASTERS, replicas=0) as cluster:
            async with connect(cluster.url + _PATIENT, CATALOGUE) as store:
                views = store[VIEWS]

                async def work(times: int) -> None:
                    for _ in range(times):
                        await views.add(video="launch", part=random.randrange(parts))

                load = Tasks(_TASKS, work)

                async def measured_round(seconds: float) -> float:
                    before = [*_additions(cluster)]
                    await load(seconds)
                    gained = [now - then for now, then in zip(_additions(cluster), before, strict=True)]
                    return 100 * max(gained) / sum(gained)

                yield measured_round

    return opened


def _additions(cluster: embedded.Cluster) -> Iterator[int]:
    for node in cluster.nodes:
        said = str(node.ask("INFO", "commandstats")).partition("cmdstat_incrby:calls=")[2]
        yield int(said.partition(",")[0] or 0)


ROWS = (
    Row(
        "hot key: one entry, 50 tasks, 10 changes a second",
        reads(LOCAL),
        {"read from the server": reads(REMOTE)},
        (Times(5, "read from the server"),),
    ),
    Row(
        "hot key: busiest of 6 masters, one count in 32 parts",
        additions(_PARTS),
        {"one key": additions(1)},
        (Absolute(30, "%", at_most=True),),
        unit="%",
        higher_is_better=False,
    ),
)
