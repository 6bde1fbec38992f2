"""The table of docs/operations/on-call.md: on real servers, the named panel shows each fault."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from ephemera import Catalogue, embedded, fixed
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import ConnectionFailed, LockLost
from ephemera.keyspace import Store, connect
from ephemera.operations.metrics import StoreMetrics, dashboard
from ephemera_services.runtime import Secret, ServiceSettings, create_application
from tests.operations.dashboard_queries import Scrape, Series, evaluate
from tests.operations.metrics_fixtures import (
    GREETING,
    INGEST,
    LIMITS,
    LOGIN,
    NEWS,
    Visit,
    catalogue,
    draw,
    parsed,
    service,
)
from tests.services.test_application import SERVICE, asking, router, shop

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "on-call.md"
TOKEN = "a-token-for-prometheus-of-32-letters"


class Row(NamedTuple):
    """A row of the page."""

    panel: str
    series: str
    comparison: str
    threshold: float


def rows() -> dict[str, Row]:
    """The rows by fault."""
    found = {}
    for line in PAGE.read_text().splitlines():
        if cells := re.fullmatch(r"\| (.+?) \| (.+?) \| (.+?) \| `([<>]) ([\d.]+)` \| .+ \|", line):
            fault, panel, series, comparison, threshold = cells.groups()
            found[fault] = Row(panel, series, comparison, float(threshold))
    return found


class OnCall:
    """Looks at the panel of a fault: `await healthy()` before it, `await shown()` after it."""

    def __init__(self, fault: str, scrape: Callable[[], Awaitable[Scrape]]) -> None:
        self._row = rows()[fault]
        self._scrape = scrape
        panels = {each["title"]: each for each in dashboard(catalogue, http=True)["panels"]}
        targets = panels[self._row.panel]["targets"]
        named = [each for each in targets if self._row.series in each["legendFormat"]]
        self._queries = [each["expr"] for each in named or targets]
        self._label = self._row.series.strip("`") if self._row.series.startswith("`") else None
        self._before: Scrape = {}

    async def healthy(self) -> None:
        """The panel shows nothing yet."""
        self._before = await self._scrape()
        assert self._crossing(self._before) == {}

    async def shown(self) -> Series:
        """Wait until the panel shows the fault; the series that do."""
        async with asyncio.timeout(60):
            while not (crossing := self._crossing(await self._scrape())):
                await asyncio.sleep(0.05)
        return crossing

    def _crossing(self, after: Scrape) -> Series:
        return {
            labels: value
            for query in self._queries
            for labels, value in evaluate(query, self._before, after).items()
            if self._label is None or self._label in labels
            if (value > self._row.threshold) == (self._row.comparison == ">") and value != self._row.threshold
        }


@asynccontextmanager
async def on_call(fault: str, store: Store) -> AsyncIterator[OnCall]:
    """Look at the metrics of a store, which shows nothing yet and must show the fault after the block."""
    metrics = StoreMetrics(store, every=timedelta(hours=1))

    async def scrape() -> Scrape:
        await metrics.sample()
        return parsed(metrics.render()[0].decode())

    looking = OnCall(fault, scrape)
    await looking.healthy()
    yield looking
    assert await looking.shown()


def test_every_panel_of_the_page_is_on_the_dashboard() -> None:
    """The page has a dozen faults, and a test of this module for each."""
    source = Path(__file__).read_text()
    assert len(rows()) == 12
    assert [fault for fault in rows() if f'"{fault}"' not in source] == []


@pytest.fixture
async def store(key: str) -> AsyncIterator[tuple[Valkey, Store]]:
    """A server of its own, with a store on it that has been used."""
    with embedded.valkey(config={"maxmemory": "8mb", "maxmemory-policy": "allkeys-lru"}) as server:
        async with connect(server.url, catalogue) as opened:
            await opened[GREETING].put("hello", user_id=key)
            yield server, opened


async def test_redis_down(store: tuple[Valkey, Store]) -> None:
    """A killed server has no connected process."""
    async with on_call("Redis is down", store[1]):
        store[0].kill()


async def test_redis_frozen(store: tuple[Valkey, Store]) -> None:
    """A stopped server answers no sample, although it accepts connections."""
    try:
        async with on_call("Redis answers nothing (frozen)", store[1]):
            store[0].pause()
    finally:
        store[0].resume()


async def test_one_master_of_a_cluster_down(key: str) -> None:
    """Only the dead master's address is shown."""
    small = Catalogue("small")
    note = small.value("note:{name}", str, lifetime=fixed(hours=1), purpose="A note")
    with embedded.cluster(replicas=0) as cluster:
        async with connect(cluster.url, small) as store:
            for number in range(30):
                await store[note].put("hello", name=f"{key}-{number}")
            fault = "one master of a cluster is down"
            async with on_call(fault, store) as looking:
                cluster.nodes[1].kill()
                ((address,),) = await looking.shown()
                assert address.endswith(f":{cluster.nodes[1].port}")


async def test_a_slow_command(store: tuple[Valkey, Store]) -> None:
    """A call that waits for another client's script is in the 99th percentile."""
    slow = "local n = 0 while n < 60000000 do n = n + 1 end return n"
    async with on_call("a command is slow", store[1]) as looking:
        async with asyncio.timeout(60):
            while not looking._crossing(await looking._scrape()):
                blocking = asyncio.create_task(asyncio.to_thread(store[0].ask, "EVAL", slow, 0))
                while not blocking.done():
                    try:
                        await store[1].client("cache").call("PING")
                    except ConnectionFailed:  # it took longer than a call may
                        await asyncio.sleep(0.05)


async def test_evictions(store: tuple[Valkey, Store], key: str) -> None:
    """More than fits is written."""
    async with on_call("memory is full, keys are evicted", store[1]):
        for number in range(900):
            await store[1][GREETING].put("x" * 20_000, user_id=f"{key}-{number}")


@pytest.mark.standalone("Celery's queues cannot be on a cluster")
async def test_jobs_wait(server: Valkey, postgres: Postgres) -> None:
    """Jobs that no worker takes are waiting."""
    async with service(server.url, postgres) as working:
        async with on_call("workers are dead, jobs wait", working.store):
            await working.jobs.enqueue_many(draw, [{"slides": 1}] * 101)


async def test_dead_letters(store: tuple[Valkey, Store], key: str) -> None:
    """An event that fails twice is a dead letter."""

    async def fail(*_: object) -> None:
        raise ValueError("unreadable")

    async with on_call("events fail for good", store[1]) as looking:
        await store[1][NEWS].publish(Visit(key))
        async with store[1][NEWS].consume("readers", fail):
            await looking.shown()


async def _hold_until_lost(store: Store, key: str) -> None:
    async with store[INGEST].hold(schema=key):
        await store.client("queue").call("UNLINK", INGEST.keyspace.key(schema=key))
        await asyncio.sleep(60)


async def test_a_lost_lock(store: tuple[Valkey, Store], key: str) -> None:
    """A lock that Redis lost is lost for its holder."""
    async with on_call("a lock was lost", store[1]):
        with pytest.raises(LockLost):
            await _hold_until_lost(store[1], key)


async def test_a_flood_of_denials(store: tuple[Valkey, Store], key: str) -> None:
    """Every third sign-in of twenty users is denied."""
    async with on_call("a client floods, limits deny", store[1]):
        for number in range(20):
            for _ in range(3):
                await store[1][LIMITS].check(LOGIN.on(f"{key}-{number}"))


@pytest.mark.standalone("Celery's queues cannot be on a cluster")
async def test_postgresql_down(server: Valkey) -> None:
    """The jobs of a database that is down cannot be sampled."""
    with embedded.postgres() as own:
        async with service(server.url, own) as working:
            async with on_call("PostgreSQL is down", working.store):
                own.kill()


@asynccontextmanager
async def shop_on_call(
    fault: str, server: Valkey, postgres: Postgres
) -> AsyncIterator[tuple[AsyncExitStack, OnCall, Callable[..., Awaitable[object]], object]]:
    """A small service, asked for its metrics as Prometheus does."""
    settings = ServiceSettings(
        url=Secret(server.url), database_url=Secret(postgres.url), metrics_token=Secret(TOKEN)
    )
    app = create_application(settings, SERVICE, shop, router)
    async with asking(app) as client, AsyncExitStack() as stack:

        async def scrape() -> Scrape:
            return parsed((await client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})).text)

        looking = OnCall(fault, scrape)
        await looking.healthy()
        yield stack, looking, client.post, app.state.resources.engine
        assert await looking.shown()


async def test_requests_fail(server: Valkey, postgres: Postgres) -> None:
    """An unexpected exception of a route is a server error of that route."""
    async with shop_on_call("requests fail", server, postgres) as (_, looking, post, _):
        await post("/orders", json={"item": "trouble", "password": "canary"})
        assert list(await looking.shown()) == [("/orders", "500")]


async def test_the_pool_is_exhausted(server: Valkey, postgres: Postgres) -> None:
    """Ten transactions use all connections of the pool."""
    async with shop_on_call("the SQL pool is exhausted", server, postgres) as (stack, looking, _, engine):
        for _ in range(10):
            await stack.enter_async_context(engine.connect())  # type: ignore[attr-defined]
        assert list((await looking.shown()).values()) == [10]
