"""Visitors of feed: a reporter who publishes, and readers for whom it is clustered and put into words."""

from __future__ import annotations

import random

from ephemera_services.demo.visitors import Scene, Visitor

SUBJECTS = {
    "space": "The rocket put a crew capsule and its satellite into orbit, says the mission",
    "money": "The central bank keeps interest rates and inflation in view of bond yields, says the governor",
    "sport": "The striker scored the winning goal of the derby in the stadium, says the coach",
}
_ENDS = ("today", "again", "at last", "on Monday", "in the morning", "once more", "as expected", "so far")
_READERS = ("ann", "bob", "carl", "dora")


def insight(subject: str) -> str:
    """A sentence about a subject, a little different each time."""
    return f"{SUBJECTS[subject]} {random.choice(_ENDS)}, report {random.randint(1, 9999)}."


class Reporter:
    """Publishes an insight: its channel is dirty, and the planner looks at who subscribed to it."""

    every = 1.2

    def __init__(self, scene: Scene) -> None:
        self._visitor = Visitor(scene, "feed")

    async def act(self) -> None:
        """Come once."""
        subject = random.choice(tuple(SUBJECTS))
        form = {"channel_id": subject, "text": insight(subject)}
        await self._visitor.want(201, "POST", "/feed/insights", json=form)


class Readers:
    """Subscribes now and then, reads often."""

    every = 1.5

    def __init__(self, scene: Scene) -> None:
        self._visitor = Visitor(scene, "feed")

    async def act(self) -> None:
        """Come once."""
        reader, subject = random.choice(_READERS), random.choice(tuple(SUBJECTS))
        path = f"/feed/users/{reader}"
        await self._visitor.want(200, "PUT", f"{path}/subscriptions/{subject}", json={"plan": "pro"})
        await self._visitor.want(200, "GET", path)
        await self._visitor.want(200, "GET", "/feed/planner")
