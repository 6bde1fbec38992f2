"""The background work: `ephemera worker feed` plans, and clusters the users that a planner enqueued.

Any number of these processes work together: one of them ticks at a time, and each user is clustered by one.
After SIGTERM or Ctrl-C no user is claimed any more, and current runs have half a minute to finish. If a
worker is killed, others recover its users: those of the stream after the lease, the rest from SQL.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

from prometheus_client import start_http_server

from ephemera.patterns.events import Delivery
from ephemera_services.feed.builder import Builder
from ephemera_services.feed.cluster_queue import LOST
from ephemera_services.feed.clusterer import ClusterPool, default_cohesion
from ephemera_services.feed.keys import ClusterUpdate, FeedKeys
from ephemera_services.feed.planner import PlannerLoop
from ephemera_services.feed.service import Aggregator, open_aggregator
from ephemera_services.feed.settings import Settings
from ephemera_services.runtime import ServiceDefinition, cancel_and_wait, open_resources, require_server_urls

__all__ = ["Settings", "open_worker"]

logger = logging.getLogger(__name__)

GROUP = "workers"
_POLL_INTERVAL = 1.0  # seconds between polls of SQL for idle users
_GRACE = timedelta(seconds=30)


@asynccontextmanager
async def open_worker(settings: Settings) -> AsyncIterator[None]:
    """Run a worker within a block, on the servers that the settings name."""
    require_server_urls(settings)
    keys = FeedKeys(settings)
    service = ServiceDefinition(
        "feed", "", keys.catalogue, keys.metadata, store_resources=keys.store_resources
    )
    async with (
        open_resources(settings, service) as resources,
        open_aggregator(settings, keys, resources) as aggregator,
        run_planner_and_builders(aggregator, keys),
    ):
        with _metrics_server(aggregator):
            yield


@contextmanager
def _metrics_server(aggregator: Aggregator) -> Iterator[None]:
    port = aggregator.settings.worker_metrics_port
    if port is None:
        yield
        return
    server, thread = start_http_server(port, "127.0.0.1", aggregator.metrics.registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@asynccontextmanager
async def run_planner_and_builders(aggregator: Aggregator, keys: FeedKeys) -> AsyncIterator[None]:
    """Run the planner and the builders within a block."""
    settings = aggregator.settings
    model = aggregator.embedder.model
    cohesion = settings.cohesion if settings.cohesion is not None else default_cohesion(model)
    async with ClusterPool(settings.builders, settings.smallest_cluster, cohesion) as pool:
        builder, planner = Builder(aggregator, pool), PlannerLoop(aggregator)

        async def update(task: ClusterUpdate, _: Delivery) -> None:
            await builder.rebuild(task.user_id)

        consumer = aggregator.store[keys.updates].consume(
            GROUP, update, concurrency=settings.builders, grace=_GRACE
        )
        async with consumer:
            loops = [
                asyncio.create_task(planner.run()),
                asyncio.create_task(_poll_queue(aggregator, builder)),
            ]
            try:
                yield
            finally:
                await cancel_and_wait(loops)


async def _poll_queue(aggregator: Aggregator, builder: Builder) -> None:
    """Rebuild users that the stream does not deliver: all while Redis is down, else those it lost."""
    while True:
        min_wait = LOST if aggregator.store.client("queue").up else timedelta(0)
        done = [False]
        try:
            users = await aggregator.queue.waiting(min_wait, aggregator.settings.builders)
            done = await asyncio.gather(*(_rebuild(builder, user) for user in users))
        except Exception:
            aggregator.metrics.errors.labels("poll").inc()
            logger.exception("could not poll the queue")
        if not any(done):
            await asyncio.sleep(_POLL_INTERVAL)


async def _rebuild(builder: Builder, user: str) -> bool:
    """Run once; whether it changed anything, in which case there may be more."""
    try:
        return (await builder.rebuild(user)).outcome == "rebuilt"
    except Exception:
        logger.exception("a run failed", extra={"user_id": user})
        return False
