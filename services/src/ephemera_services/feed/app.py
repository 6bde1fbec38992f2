"""The application: `ephemera serve feed`, or mounted under a prefix beside other services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from ephemera_services.feed import demo_data
from ephemera_services.feed.access import client_tokens
from ephemera_services.feed.forms import BULK_BYTES
from ephemera_services.feed.grpc_server import serve_grpc
from ephemera_services.feed.keys import FeedKeys
from ephemera_services.feed.routes import router
from ephemera_services.feed.service import Aggregator, open_aggregator
from ephemera_services.feed.settings import Settings
from ephemera_services.feed.worker import run_planner_and_builders
from ephemera_services.runtime import (
    Resources,
    ServiceDefinition,
    create_application,
    web_page_router,
)

__all__ = ["Settings", "create_app"]


def create_app(settings: Settings) -> FastAPI:
    """Return the application, which opens its resources at startup."""
    keys = FeedKeys(settings)
    tokens = client_tokens(settings)

    @asynccontextmanager
    async def start(resources: Resources) -> AsyncIterator[Aggregator]:
        async with (
            open_aggregator(settings, keys, resources) as aggregator,
            _embedded_worker(aggregator, keys),
            serve_grpc(aggregator, settings.grpc_address, tokens),
        ):
            if settings.demo:
                await demo_data.seed(aggregator)
            yield aggregator

    service = ServiceDefinition(
        "feed",
        "A personal feed: new insights, clustered and summarized when it is worth it.",
        keys.catalogue,
        keys.metadata,
        body_limits={"/feed/bulk/insights": BULK_BYTES},
        store_resources=keys.store_resources,
    )
    app = create_application(settings, service, start, router, web_page_router("feed"))
    app.state.tokens = tokens
    return app


@asynccontextmanager
async def _embedded_worker(aggregator: Aggregator, keys: FeedKeys) -> AsyncIterator[None]:
    """Plan and cluster in this process if its servers are embedded: no worker could reach them."""
    if aggregator.settings.url is not None:
        yield
        return
    async with run_planner_and_builders(aggregator, keys):
        yield
