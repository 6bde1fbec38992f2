"""The console under way: its places, and what it finds out about them in the background for all who look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from ephemera.console._access import Access
from ephemera.console._audit_runner import Audits
from ephemera.console._connections import Place, PlaceSettings, opened
from ephemera.console._survey_cache import Surveys
from ephemera.console._watcher import Watch

_TIDY = 2.0  # seconds


@dataclass(frozen=True)
class Settings:
    """How a console is run."""

    places: tuple[PlaceSettings, ...]
    user: str
    password: str
    host: str = "127.0.0.1"
    port: int = 8085
    public_url: str | None = None
    allow_actions: bool = False


class Console:
    """What all pages share."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self.allow_actions = settings.allow_actions
        self.access = access
        self.places: list[Place] = []
        self.watch = Watch(())
        self.surveys = Surveys(())
        self.audits = Audits(())
        self._settings = settings

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The places open, and what goes on in the background."""
        async with AsyncExitStack() as stack:
            self.places = [await stack.enter_async_context(opened(each)) for each in self._settings.places]
            self.watch, self.surveys = Watch(self.places), Surveys(self.places)
            self.audits = Audits(self.places)
            stack.push_async_callback(self.surveys.stop)
            stack.push_async_callback(self.audits.stop)
            ratios = (place.hit_ratios.run() for place in self.places)
            work = [asyncio.create_task(each) for each in (self._tidy(), self.watch.run(), *ratios)]
            stack.push_async_callback(_ended, work)
            yield

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(_TIDY)
            self.access.tidy()


async def _ended(work: list[asyncio.Task[None]]) -> None:
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
