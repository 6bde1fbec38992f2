"""The background side: `ephemera worker feed` plans, and clusters whom a planner handed over.

Any number of these processes work together: one of them ticks at a time, a user is clustered by one. SIGTERM
or Ctrl-C: no user is taken any more, and runs under way have half a minute to end. Killed in any other way,
its users are found by others: those of the stream after its lease, all others in SQL.
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
from ephemera_services.feed.clusterer import Clusterizer
from ephemera_services.feed.keys import ClusterUpdate, Declared
from ephemera_services.feed.planner import Planning
from ephemera_services.feed.service import Aggregator, open_aggregator
from ephemera_services.feed.settings import Settings
from ephemera_services.runtime import ServiceDefinition, cancel_and_wait, open_resources, require_server_urls

__all__ = ["Settings", "open_worker"]

logger = logging.getLogger(__name__)

GROUP = "workers"
_LOOK_EVERY = 1.0  # seconds between looks into SQL for users whom nobody works on
_ENDS_WITHIN = timedelta(seconds=30)


@asynccontextmanager
async def open_worker(settings: Settings) -> AsyncIterator[None]:
    """A worker on the servers that the settings name, for the length of a block."""
    require_server_urls(settings)
    declared = Declared(settings)
    service = ServiceDefinition("feed", "", declared.catalogue, declared.metadata)
    async with (
        open_resources(settings, service) as resources,
        open_aggregator(settings, declared, resources) as aggregator,
        planning_and_building(aggregator, declared),
    ):
        with _shown_metrics(aggregator):
            yield


@contextmanager
def _shown_metrics(aggregator: Aggregator) -> Iterator[None]:
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
async def planning_and_building(aggregator: Aggregator, declared: Declared) -> AsyncIterator[None]:
    """A planner and builders at work for the length of a block."""
    settings = aggregator.settings
    async with Clusterizer(settings.builders, settings.smallest_cluster) as clusterizer:
        builder, planning = Builder(aggregator, clusterizer), Planning(aggregator)

        async def update(task: ClusterUpdate, _: Delivery) -> None:
            await builder.rebuild(task.user_id)

        consumer = aggregator.store[declared.updates].consume(
            GROUP, update, concurrency=settings.builders, grace=_ENDS_WITHIN
        )
        async with consumer:
            loops = [asyncio.create_task(planning.run()), asyncio.create_task(_look(aggregator, builder))]
            try:
                yield
            finally:
                await cancel_and_wait(loops)


async def _look(aggregator: Aggregator, builder: Builder) -> None:
    """Work on users of whom the stream does not tell: all while Redis is away, else those it has lost."""
    while True:
        patience = LOST if aggregator.store.client("queue").up else timedelta(0)
        done = [False]
        try:
            users = await aggregator.queue.waiting(patience, aggregator.settings.builders)
            done = await asyncio.gather(*(_rebuilt(builder, user) for user in users))
        except Exception:
            aggregator.metrics.errors.labels("look").inc()
            logger.exception("users who wait could not be looked for")
        if not any(done):
            await asyncio.sleep(_LOOK_EVERY)


async def _rebuilt(builder: Builder, user: str) -> bool:
    """Whether a run changed anything; there may be more like it then."""
    try:
        return (await builder.rebuild(user)).ending == "rebuilt"
    except Exception:
        logger.exception("a run failed", extra={"user_id": user})
        return False
