"""Demo channels and users: `await seed(aggregator)` creates them if they do not exist.

The wordings of a story share words, as those of agencies do, so that the default embedder finds the stories.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from ephemera_services.feed.insights import NewInsight
from ephemera_services.feed.service import Aggregator

STORIES = {
    "space": (
        (
            "A crew capsule docks with the space station after a flight of two days",
            "The crew capsule reached the space station on its second day and docked by itself",
            "Four astronauts enter the space station after their capsule docked",
            "Space station welcomes a crew of four: their capsule docked at dawn",
        ),
        (
            "Rocket's first stage lands on the ship for the twentieth time",
            "For the twentieth time, the first stage of a rocket lands on its ship",
            "Twenty landings: the same first stage comes down on the ship again",
            "First stage of the rocket returns to the ship and sets a record of twenty landings",
        ),
        (
            "Telescope finds water vapour in the air of a distant planet",
            "Water vapour discovered on a distant planet by the space telescope",
            "A distant planet has water vapour in its air, the telescope shows",
        ),
    ),
    "money": (
        (
            "Central bank leaves its interest rate at three percent",
            "The interest rate of the central bank stays at three percent",
            "At three percent, the central bank's interest rate remains unchanged",
            "No change: central bank keeps the interest rate, and savers wait for the spring",
        ),
        (
            "Coffee prices rise for the fifth month after a poor harvest",
            "Poor harvest: the price of coffee rises for a fifth month",
            "Coffee has become dearer for five months, and the harvest is poor again",
        ),
        (
            "Two shipyards on the coast merge and promise to keep all jobs",
            "Shipyards announce that they merge; unions were promised all jobs on the coast",
            "Merger of the two shipyards keeps the jobs on the coast, say owners",
        ),
    ),
    "city": (
        (
            "New tram line opens and joins the harbour to the university",
            "Harbour and university are joined by the new tram line that opens on Monday",
            "First passengers ride the new tram line from the harbour to the university",
            "The tram line to the university opens with a feast at the harbour",
        ),
        (
            "Old library reopens after three years of repairs",
            "After three years the old library reopens, with its roof repaired",
            "Readers return as the old library reopens its doors after repairs",
        ),
        (
            "Storm closes the bridge over the river for a night",
            "The bridge over the river was closed for a night because of the storm",
            "Storm damage: river bridge closed until the morning",
        ),
    ),
    "sport": (
        (
            "Goalkeeper saves three penalties and wins the cup for the harbour club",
            "Harbour club wins the cup after its goalkeeper saves three penalties",
            "Three saved penalties: the goalkeeper of the harbour club lifts the cup",
            "The cup goes to the harbour club, thanks to a goalkeeper and three penalties",
        ),
        (
            "Marathon record falls by eleven seconds on a cool morning",
            "On a cool morning a runner takes eleven seconds off the marathon record",
            "Eleven seconds faster: the marathon record falls at last",
        ),
    ),
}
"""Of each channel its stories, and of each story its wordings."""
DEMO_CHANNELS = tuple(STORIES)
SOURCES = ("Example Daily", "Morning Example", "Example Wire", "The Example")
USERS = (("ann", "pro", DEMO_CHANNELS), ("bob", "free", ("space", "sport")))
_APART, _LATER = timedelta(hours=3), timedelta(minutes=25)


async def seed(aggregator: Aggregator) -> list[str]:
    """Create the demo channels and users, and return the new users."""
    created = [user for user, _, _ in USERS if await aggregator.status(user) is None]
    if created:
        await aggregator.insights.publish(list(_insights(datetime.now(UTC))))
    for user, plan, channels in USERS:
        for channel in channels:
            await aggregator.subscribe(user, channel, plan)
    return created


def demo_news(channel: str) -> dict[str, str]:
    """What someone reports in a channel at the moment, as the body of a request."""
    text = random.choice(random.choice(STORIES[channel]))
    url = f"{_url(text)}?edition={uuid4()}"  # another article each time
    return {
        "channel_id": channel,
        "text": text,
        "source": random.choice(SOURCES),
        "url": url,
        "language": "en",
    }


def _insights(now: datetime) -> Iterator[NewInsight]:
    """All wordings, each from another source, a little after the one before."""
    for place, (channel, stories) in enumerate(STORIES.items()):
        for number, wordings in enumerate(stories):
            first = now - (number * len(STORIES) + place + 1) * _APART
            for later, text in enumerate(wordings):
                source = SOURCES[(place + later) % len(SOURCES)]
                yield NewInsight(channel, text, source, _url(text), first + later * _LATER, "en")


def _url(text: str) -> str:
    return f"https://example.com/{re.sub('[^a-z0-9]+', '-', text.lower()).strip('-')}"
