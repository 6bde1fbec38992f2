"""A service that uses everything that has metrics: its catalogue, and a store with some activity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue
from ephemera.embedded import Postgres
from ephemera.keyspace import Store, connect, fixed
from ephemera.operations.metrics import StoreMetrics
from ephemera.patterns.cache import Cache, LocalCache
from ephemera.patterns.events import DeliveryPolicy, Events
from ephemera.patterns.jobs import BoundJobs, Jobs, Retry, Run, sql_engine
from ephemera.patterns.jobs._attempt import AttemptRunner
from ephemera.patterns.locks import Locks
from ephemera.patterns.planner import BoundPlanner, Plan, Planner
from ephemera.patterns.rate_limits import RateLimits, fixed_window
from ephemera.patterns.write_behind import DeferredCounters, DeferredRecords
from ephemera.sql import migrate

DAY = timedelta(days=1)


class Profile(msgspec.Struct):
    """A user's profile."""

    name: str


class Visit(msgspec.Struct):
    """A visit of a page."""

    page: str


catalogue = Catalogue("measured")
METADATA = sa.MetaData(schema="measured")
PROFILE = catalogue.hash("profile:{user_id}", Profile, lifetime=fixed(hours=1), purpose="A user's profile")
GREETING = catalogue.value("greeting:{user_id}", str, lifetime=fixed(hours=1), purpose="What to say")
PAGES = Cache(
    catalogue,
    "page:{name}",
    str,
    fresh=timedelta(minutes=5),
    local=LocalCache(max_entries=2),
    purpose="Pages",
)
LOGIN = fixed_window("login", 2, per=timedelta(hours=1))
SEARCH = fixed_window("search", 1000, per=timedelta(hours=1))
LIMITS = RateLimits(catalogue, "limit", LOGIN, SEARCH)
INGEST = Locks(catalogue, "lock:ingest:{schema}", lease=timedelta(seconds=2), purpose="One ingest at a time")
NEWS = Events(
    catalogue, "news:all", Visit, purpose="What happened",
    delivery=DeliveryPolicy(
        max_deliveries=2, first_retry=timedelta(milliseconds=20), lease=timedelta(seconds=1)
    ),
)  # fmt: skip
ROOMS = Events(catalogue, "room:{room}", Visit, purpose="What happened in a room")
VIEWS = DeferredCounters(
    catalogue, "views", key=("page",), measures=("views",), flush_every=DAY, purpose="Views of pages"
)
VISITS = DeferredRecords(catalogue, "visits", Visit, flush_every=DAY, purpose="Visits")
JOBS = Jobs(catalogue, "job:{job_id}", queues=("work",), metadata=METADATA)
FEED = Planner(
    catalogue,
    METADATA,
    plans={"free": Plan(novelty=1, every=DAY, active_within=DAY, cooldown=timedelta(0))},
)


@JOBS.job(queue="work", retry=Retry(attempts=1))
async def draw(run: Run, slides: int, then_fail: bool = False) -> None:
    """Draw slides, one per step."""
    for number in range(slides):
        await run.step(f"slide:{number}", asyncio.sleep, 0)
    if then_fail:
        raise ValueError("no more paper")


class Service:
    """The store of the service, and the patterns that need a database."""

    def __init__(self, store: Store, engine: AsyncEngine) -> None:
        self.store = store
        self.jobs: BoundJobs = store[JOBS]
        self.planner: BoundPlanner = store[FEED]
        self.metrics = StoreMetrics(store, every=timedelta(hours=1))  # tests sample when they want to

    async def run(self, job_id: str) -> str:
        """Run a job here, as a worker would."""

        async def nothing() -> None:
            return None

        runner = AttemptRunner(
            self.jobs._backend, "worker", worker_context=nothing, is_stopping=lambda: False
        )
        return await runner.run(job_id)

    async def use_everything(self, key: str) -> None:
        """Use each pattern once or a few times; `key` is for ids that no other test uses."""
        store = self.store
        await store[PROFILE].put(Profile("Ada"), user_id=key)
        await store[PROFILE].get(user_id=key)
        await store[PROFILE].get(user_id=f"{key}-missing")
        await store[GREETING].put("hello", user_id=key)
        for name in "abc":
            await store[PAGES].get_or_load(_page, name=f"{key}-{name}")
        for _ in range(3):
            await store[LIMITS].check(LOGIN.on(key), SEARCH.on(key))
        async with store[INGEST].hold(schema=key):
            await store[VIEWS].add(page=key, views=1)
        await store[VISITS].append(Visit(key), Visit(key))
        await store[NEWS].publish(Visit(key))
        async with store[NEWS].consume("readers", _read) as consumer:
            while not consumer.counts.handled:
                await asyncio.sleep(0.005)
        await self.jobs._backend.rows.claim(await self.jobs.enqueue(draw, 1), "worker", DAY)
        await self.metrics.sample()  # what ends from here on is counted
        await self.run(await self.jobs.enqueue(draw, 2))
        await self.planner.enroll(key, plan="free")
        await self.planner.subscribe(key, f"{key}-channel")
        await self.planner.publish(f"{key}-channel")
        await self.planner.tick(_hand_over)

    def scraped(self) -> dict[tuple[str, ...], float]:
        """Every sample of a scrape: by name, then `label=value` in order."""
        return parsed(self.metrics.render()[0].decode())


@asynccontextmanager
async def service(url: str, postgres: Postgres, **options: Any) -> AsyncIterator[Service]:
    """The service with empty tables."""
    engine = sql_engine(postgres.database("measured"))
    try:
        async with engine.begin() as sql:
            await sql.execute(sa.text("DROP SCHEMA IF EXISTS measured CASCADE"))
        await migrate(engine, catalogue)
        async with engine.begin() as sql:
            await sql.run_sync(METADATA.create_all)
        async with connect(url, catalogue, resources={JOBS: engine, FEED: engine}, **options) as store:
            yield Service(store, engine)
    finally:
        await engine.dispose()


def parsed(text: str) -> dict[tuple[str, ...], float]:
    """The samples of an exposition."""
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def _page(name: str) -> str:
    return f"the page {name}"


async def _read(*_: object) -> None:
    return None


async def _hand_over(_: object) -> None:
    return None
