"""Simulated users of feed: a reporter who publishes insights, and readers whose feeds are built from them."""

from __future__ import annotations

import random

from ephemera_services.demo.clients import DemoClient, TrafficContext
from ephemera_services.feed import DEMO_CHANNELS, demo_news

_READERS = ("ann", "bob", "carl", "dora")


class Reporter:
    """Publishes an insight: its channel becomes dirty, and the planner checks its subscribers."""

    every = 1.2

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "feed")

    async def act(self) -> None:
        """Act once."""
        await self._client.expect(201, "POST", "/feed/insights", json=demo_news(random.choice(DEMO_CHANNELS)))


class Readers:
    """Subscribe, and read their feeds."""

    every = 1.5

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "feed")

    async def act(self) -> None:
        """Act once."""
        reader, channel = random.choice(_READERS), random.choice(DEMO_CHANNELS)
        path = f"/feed/users/{reader}"
        await self._client.expect(200, "PUT", f"{path}/subscriptions/{channel}", json={"plan": "pro"})
        await self._client.expect(200, "GET", path)
        await self._client.expect(200, "GET", "/feed/planner")
