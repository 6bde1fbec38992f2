"""`ephemera worker --system scripture`: the consumers of its events, and the relay of those left behind."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from ephemera.systems.scripture.app import described
from ephemera.systems.scripture.service import opened_scripture
from ephemera.systems.scripture.settings import Settings
from ephemera.systems.serving import opened
from ephemera.systems.working import must_name_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Settings", "working"]


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[None]:
    """Handle events for the length of the block, whatever `consumers` says: that is for the service."""
    must_name_servers(settings)
    settings = msgspec.structs.replace(settings, consumers=True)
    async with opened(settings, described(settings)) as resources, opened_scripture(settings, resources):
        yield
