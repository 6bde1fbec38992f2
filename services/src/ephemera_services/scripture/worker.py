"""`ephemera worker --system scripture`: the consumers of its events, and the relay of those left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from ephemera_services.application import opened
from ephemera_services.scripture.app import described
from ephemera_services.scripture.service import opened_scripture
from ephemera_services.scripture.settings import Settings
from ephemera_services.worker_application import must_name_servers

__all__ = ["Settings", "working"]


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[None]:
    """Handle events for the length of the block, whatever `consumers` says: that is for the service."""
    must_name_servers(settings)
    settings = msgspec.structs.replace(settings, consumers=True)
    async with opened(settings, described(settings)) as resources, opened_scripture(settings, resources):
        yield
