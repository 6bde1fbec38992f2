"""Light synthetic traffic, so that whoever looks sees every part move: some requests a second.

A crowd does something again and again: `act` is what it does once, with a pause of about `every` seconds
after it. Servers may be stopped at any time, by the user as well: then it tries again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import httpx

from ephemera.errors import EphemeraError
from ephemera_services.demo.traffic.feed import Readers, Reporter
from ephemera_services.demo.traffic.identity import Intruder, Members
from ephemera_services.demo.traffic.league import Impatient, Pollers, Referee, Supporters
from ephemera_services.demo.traffic.scripture import Asker, Editor, LostUser, Scholars
from ephemera_services.demo.traffic.slides import Audience, Authors
from ephemera_services.demo.visitors import Scene, Unexpected


class Crowd(Protocol):
    """Somebody who does something again and again."""

    every: float

    async def act(self) -> None:
        """Do it once."""


@asynccontextmanager
async def playing(scene: Scene) -> AsyncIterator[None]:
    """Traffic for the length of a block."""
    crowds: list[Crowd] = [
        *(Members(scene), Members(scene), Intruder(scene)),
        *(Authors(scene), Authors(scene), Audience(scene)),
        *(Scholars(scene), Scholars(scene), Asker(scene), Editor(scene), LostUser(scene)),
        *(Reporter(scene), Readers(scene)),
        *(Pollers(scene), Pollers(scene), Supporters(scene), Referee(scene), Impatient(scene)),
    ]
    tasks = [asyncio.create_task(_play(crowd, scene)) for crowd in crowds]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _play(crowd: Crowd, scene: Scene) -> None:
    await asyncio.sleep(random.uniform(0, crowd.every / 2))
    while True:
        try:
            await crowd.act()
        except (Unexpected, httpx.HTTPError, EphemeraError):
            scene.tally["came to nothing"] += 1
        await asyncio.sleep(crowd.every * random.uniform(0.5, 1.5))
