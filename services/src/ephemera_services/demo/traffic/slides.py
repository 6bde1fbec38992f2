"""Visitors of slides: authors who have presentations written and exported, and an audience for them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from ephemera_services.demo.visitors import Scene, Unexpected, Visitor
from ephemera_services.runtime import DEMO_PASSWORD

AUTHOR = "anna@company.example"
ADMINISTRATOR = "root@company.example"
_TOPICS = ("Whales", "The history of tea", "Bridges", "How bees find home", "Tides", "Whales of the north")
_UNAUTHORIZED = 401
_MOST_LINKS = 10  # that the audience knows


class Author:
    """Somebody with an account, who signs in when they have to."""

    def __init__(self, scene: Scene, email: str = AUTHOR) -> None:
        self.visitor = Visitor(scene, "slides")
        self._email = email
        self._known = False

    async def want(self, status: int, method: str, path: str, **more: Any) -> Any:
        """The body of an answer; after a lost session the same once more."""
        if not self._known:
            await self.sign_in()
        answer = await self.visitor.ask(method, path, **more)
        if answer.status_code == _UNAUTHORIZED:
            await self.sign_in()
            answer = await self.visitor.ask(method, path, **more)
        if answer.status_code != status:
            raise Unexpected(f"{method} {path} answered {answer.status_code}: {answer.text[:200]}")
        return answer.json() if answer.content else None

    async def sign_in(self) -> dict[str, Any]:
        """Who signed in."""
        form = {"email": self._email, "password": DEMO_PASSWORD}
        account: dict[str, Any] = await self.visitor.want(200, "POST", "/auth/login", json=form)
        self._known = True
        return account

    async def finished(self, job_id: str) -> dict[str, Any]:
        """A job when it has ended."""
        while True:
            job: dict[str, Any] = await self.want(200, "GET", f"/jobs/{job_id}")
            if job["state"] not in ("waiting", "running"):
                return job
            await asyncio.sleep(1)


async def unlimited(scene: Scene) -> None:
    """Give the demonstration's organization a plan that its visitors do not use up."""
    administrator = Author(scene, ADMINISTRATOR)
    async with administrator.visitor:
        account = await administrator.sign_in()
        path = f"/admin/organizations/{account['organization_id']}/plan"
        await administrator.want(
            200, "PUT", path, json={"plan": "enterprise", "requests_per_minute": 100_000}
        )


class Authors:
    """Has a presentation written, waits for it, exports it, and shares it."""

    every = 4.0

    def __init__(self, scene: Scene) -> None:
        self._author = Author(scene)
        self._scene = scene

    async def act(self) -> None:
        """Come once."""
        wish = {"topic": random.choice(_TOPICS), "slides": random.randint(6, 14)}
        begun = await self._author.want(202, "POST", "/presentations", json=wish)
        if (await self._author.finished(begun["job_id"]))["state"] != "done":
            return
        self._scene.tally["presentations"] += 1
        path = f"/presentations/{begun['presentation_id']}"
        await self._author.want(
            202, "POST", f"{path}/exports", json={"format": random.choice(("pptx", "pdf"))}
        )
        shared = await self._author.want(201, "POST", f"{path}/shares")
        self._scene.shared.append(shared["url"])
        del self._scene.shared[:-_MOST_LINKS]


class Audience:
    """Looks at shared presentations: each look is a view, counted in Redis and flushed to SQL."""

    every = 0.7

    def __init__(self, scene: Scene) -> None:
        self._visitor = Visitor(scene, "slides")
        self._links = scene.shared

    async def act(self) -> None:
        """Come once."""
        if self._links:
            await self._visitor.want(200, "GET", random.choice(self._links))
