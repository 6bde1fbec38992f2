"""Light synthetic traffic, a few requests per second, so that every part of the demo shows activity.

Each simulated user acts repeatedly, with a pause of about `every` seconds. Servers may be stopped at any
time, even by you; the simulated users then try again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import httpx

from ephemera.errors import EphemeraError
from ephemera_services.demo.clients import TrafficContext, UnexpectedStatus
from ephemera_services.demo.traffic.feed import Readers, Reporter
from ephemera_services.demo.traffic.identity import Intruder, Members
from ephemera_services.demo.traffic.league import FastPoller, Pollers, SimulatedSupporters
from ephemera_services.demo.traffic.scripture import ContentReaders, Editor, PoisonPublisher, Questioner
from ephemera_services.demo.traffic.slides import Audience, Authors


class SimulatedUser(Protocol):
    """Does something repeatedly."""

    every: float

    async def act(self) -> None:
        """Do it once."""


@asynccontextmanager
async def generate_traffic(context: TrafficContext) -> AsyncIterator[None]:
    """Generate traffic within a block."""
    actors: list[SimulatedUser] = [
        *(Members(context), Members(context), Intruder(context)),
        *(Authors(context), Authors(context), Audience(context)),
        *(
            ContentReaders(context),
            ContentReaders(context),
            Questioner(context),
            Editor(context),
            PoisonPublisher(context),
        ),
        *(Reporter(context), Readers(context)),
        *(Pollers(context), Pollers(context), FastPoller(context)),
        SimulatedSupporters(context),
    ]
    tasks = [asyncio.create_task(_repeat(actor, context)) for actor in actors]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _repeat(actor: SimulatedUser, context: TrafficContext) -> None:
    await asyncio.sleep(random.uniform(0, actor.every / 2))
    while True:
        try:
            await actor.act()
        except (UnexpectedStatus, httpx.HTTPError, EphemeraError):
            context.counts["failed"] += 1
        await asyncio.sleep(actor.every * random.uniform(0.5, 1.5))
