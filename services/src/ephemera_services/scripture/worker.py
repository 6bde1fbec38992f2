"""`ephemera worker scripture`: the event consumers and the outbox relay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from ephemera_services.runtime import open_resources, require_server_urls
from ephemera_services.scripture.app import service_definition
from ephemera_services.scripture.service import open_scripture
from ephemera_services.scripture.settings import Settings

__all__ = ["Settings", "open_worker"]


@asynccontextmanager
async def open_worker(settings: Settings) -> AsyncIterator[None]:
    """Handle events within a block, regardless of the setting `consumers`, which is for the service."""
    require_server_urls(settings)
    settings = msgspec.structs.replace(settings, consumers=True)
    async with (
        open_resources(settings, service_definition(settings)) as resources,
        open_scripture(settings, resources),
    ):
        yield
