"""Demo channels and users: `await seed(aggregator)` creates them if they do not exist."""

from __future__ import annotations

from ephemera_services.feed.service import Aggregator

INSIGHTS = {
    "space": (
        "The crew capsule docked with the space station after a flight of two days.",
        "The capsule with a crew of four reached the space station on its second day of flight.",
        "A crew of four arrived at the space station; the capsule docked by itself.",
        "The rocket's first stage landed on the ship for the twentieth time.",
        "For the twentieth time the first stage of a rocket landed on the ship.",
        "Twenty landings: the rocket's first stage came down on the ship again.",
    ),
    "money": (
        "The central bank left its interest rate where it was, at three percent.",
        "The interest rate of the central bank stays at three percent.",
        "At three percent the interest rate of the central bank remains unchanged.",
        "Prices of coffee rose for the fifth month.",
        "Coffee prices rose again, for the fifth month.",
        "For the fifth month the prices of coffee rose.",
    ),
}
SOURCES = ("Example Daily", "Morning Example", "Example Wire")
USERS = (("ann", "pro", ("space", "money")), ("bob", "free", ("space",)))


async def seed(aggregator: Aggregator) -> list[str]:
    """Create the demo channels and users, and return the new users."""
    created = [user for user, _, _ in USERS if await aggregator.status(user) is None]
    if created:
        for channel, texts in INSIGHTS.items():
            for number, text in enumerate(texts):
                source = SOURCES[number % len(SOURCES)]
                await aggregator.publish(channel, text, source=source, language="en")
    for user, plan, channels in USERS:
        for channel in channels:
            await aggregator.subscribe(user, channel, plan)
    return created
