"""The application: `ephemera serve feed`, or mounted under a prefix beside other systems."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from ephemera_services.feed import demo_data
from ephemera_services.feed.grpc_server import serving_grpc
from ephemera_services.feed.keys import Declared
from ephemera_services.feed.routes import router
from ephemera_services.feed.service import Aggregator, open_aggregator
from ephemera_services.feed.settings import Settings
from ephemera_services.feed.worker import planning_and_building
from ephemera_services.runtime import Resources, ServiceDefinition, create_application

__all__ = ["Settings", "create_app"]


def create_app(settings: Settings) -> FastAPI:
    """The application, which opens what it needs when it starts."""
    declared = Declared(settings)

    @asynccontextmanager
    async def start(resources: Resources) -> AsyncIterator[Aggregator]:
        async with (
            open_aggregator(settings, declared, resources) as aggregator,
            _working_here(aggregator, declared),
            serving_grpc(aggregator, settings.grpc_address),
        ):
            if settings.demo:
                await demo_data.seed(aggregator)
            yield aggregator

    service = ServiceDefinition(
        "feed",
        "What is new for a user, clustered and in words, when it is worth it.",
        declared.catalogue,
        declared.metadata,
    )
    return create_application(settings, service, start, router)


@asynccontextmanager
async def _working_here(aggregator: Aggregator, declared: Declared) -> AsyncIterator[None]:
    """Plan and cluster in this process when its servers are its own: no worker could reach them."""
    if aggregator.settings.url is not None:
        yield
        return
    async with planning_and_building(aggregator, declared):
        yield
