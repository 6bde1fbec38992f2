"""Simulated users of slides: authors who generate, export and share presentations, and their audience."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from ephemera_services.demo.clients import DemoClient, TrafficContext, UnexpectedStatus
from ephemera_services.runtime import DEMO_PASSWORD

ORGANIZATION = "Company"
AUTHOR = "anna@company.example"
_TOPICS = ("Whales", "The history of tea", "Bridges", "How bees find home", "Tides", "Whales of the north")
_UNAUTHORIZED = 401
_MAX_LINKS = 10  # that the audience knows


class Author:
    """A user with an account, who signs in when needed."""

    def __init__(self, context: TrafficContext, email: str = AUTHOR) -> None:
        self.client = DemoClient(context, "slides")
        self._email = email
        self._signed_in = False

    async def expect(self, status: int, method: str, path: str, **options: Any) -> Any:
        """Return the body of a response with this status, after signing in again if the session was lost."""
        if not self._signed_in:
            await self.sign_in()
        response = await self.client.request(method, path, **options)
        if response.status_code == _UNAUTHORIZED:
            await self.sign_in()
            response = await self.client.request(method, path, **options)
        if response.status_code != status:
            raise UnexpectedStatus(f"{method} {path} answered {response.status_code}: {response.text[:200]}")
        return response.json() if response.content else None

    async def sign_in(self) -> dict[str, Any]:
        """Sign in, and return the account."""
        form = {"organization": ORGANIZATION, "email": self._email, "password": DEMO_PASSWORD}
        account: dict[str, Any] = await self.client.expect(200, "POST", "/auth/login", json=form)
        self._signed_in = True
        return account

    async def wait_for_job(self, job_id: str) -> dict[str, Any]:
        """Wait until a job has ended."""
        while True:
            job: dict[str, Any] = await self.expect(200, "GET", f"/jobs/{job_id}")
            if job["state"] not in ("waiting", "running"):
                return job
            await asyncio.sleep(1)


class Authors:
    """Generate a presentation, wait for it, export it, and share it."""

    every = 4.0

    def __init__(self, context: TrafficContext) -> None:
        self._author = Author(context)
        self._context = context

    async def act(self) -> None:
        """Act once."""
        form = {"topic": random.choice(_TOPICS), "slides": random.randint(6, 14)}
        accepted = await self._author.expect(202, "POST", "/presentations", json=form)
        if (await self._author.wait_for_job(accepted["job_id"]))["state"] != "done":
            return
        self._context.counts["presentations"] += 1
        path = f"/presentations/{accepted['presentation_id']}"
        await self._author.expect(
            202, "POST", f"{path}/exports", json={"format": random.choice(("pptx", "pdf"))}
        )
        shared = await self._author.expect(201, "POST", f"{path}/shares")
        self._context.shared_paths.append(shared["url"])
        del self._context.shared_paths[:-_MAX_LINKS]


class Audience:
    """Opens shared presentations: each view is counted in Redis and flushed to SQL."""

    every = 0.7

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "slides")
        self._links = context.shared_paths

    async def act(self) -> None:
        """Act once."""
        if self._links:
            await self._client.expect(200, "GET", random.choice(self._links))
