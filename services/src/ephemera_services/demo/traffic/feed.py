"""Simulated users of feed: a reporter who publishes insights, and readers whose feeds are built from them."""

from __future__ import annotations

import random

from ephemera_services.demo.clients import DemoClient, TrafficContext

SUBJECTS = {
    "space": "The rocket put a crew capsule and its satellite into orbit, says the mission",
    "money": "The central bank keeps interest rates and inflation in view of bond yields, says the governor",
    "sport": "The striker scored the winning goal of the derby in the stadium, says the coach",
}
_ENDINGS = ("today", "again", "at last", "on Monday", "in the morning", "once more", "as expected", "so far")
_READERS = ("ann", "bob", "carl", "dora")


def insight(subject: str) -> str:
    """A sentence about a subject, a little different each time."""
    return f"{SUBJECTS[subject]} {random.choice(_ENDINGS)}, report {random.randint(1, 9999)}."


class Reporter:
    """Publishes an insight: its channel becomes dirty, and the planner checks its subscribers."""

    every = 1.2

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "feed")

    async def act(self) -> None:
        """Act once."""
        subject = random.choice(tuple(SUBJECTS))
        form = {"channel_id": subject, "text": insight(subject)}
        await self._client.expect(201, "POST", "/feed/insights", json=form)


class Readers:
    """Subscribe, and read their feeds."""

    every = 1.5

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "feed")

    async def act(self) -> None:
        """Act once."""
        reader, subject = random.choice(_READERS), random.choice(tuple(SUBJECTS))
        path = f"/feed/users/{reader}"
        await self._client.expect(200, "PUT", f"{path}/subscriptions/{subject}", json={"plan": "pro"})
        await self._client.expect(200, "GET", path)
        await self._client.expect(200, "GET", "/feed/planner")
