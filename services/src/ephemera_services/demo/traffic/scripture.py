"""Simulated users of scripture: readers, questions, an editor, and an event that no consumer can handle."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any
from uuid import uuid4

from ephemera.keyspace import connect
from ephemera_services.demo.clients import DemoClient, TrafficContext
from ephemera_services.demo.external_servers import IDENTITY, service_database
from ephemera_services.demo.process_plan import ADMINISTRATOR
from ephemera_services.demo.traffic.identity import bearer, sign_in

_PASSAGES = ("john.3.16", "gen.1.1", "gen.1.3", "ps.23.1", "ps.23.4", "1cor.13.4", "john.1.1")
_QUESTIONS = (
    "What is said about love?",
    "What is said of love?",
    "Who is my shepherd?",
    "What was in the beginning?",
    "Where does light come from?",
)
_TOKEN_LIFETIME = 600.0  # seconds; a little less than the real one


class ContentReaders:
    """Read content, most of it from the cache."""

    every = 0.6

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "scripture")

    async def act(self) -> None:
        """Act once."""
        path = random.choice(
            (
                f"/passages/{random.choice(_PASSAGES)}",
                f"/passages/{random.choice(_PASSAGES)}?include=words,xrefs",
                "/chapters/gen.1?translation=web",
                "/topics/love",
                "/lexicon/g26",
                "/search?q=light",
            )
        )
        await self._client.request("GET", path)  # sometimes 429: that should be seen as well


class Questioner:
    """Asks questions, often the same or similar ones."""

    every = 5.0

    def __init__(self, context: TrafficContext) -> None:
        self._context = context

    async def act(self) -> None:
        """Act once."""
        async with DemoClient(self._context, "scripture") as client:
            await client.request("POST", "/ai/ask", json={"question": random.choice(_QUESTIONS)})


class Administrator:
    """The administrator, with a token of identity that is reused until it expires."""

    def __init__(self, context: TrafficContext) -> None:
        self._context = context
        self._client = DemoClient(context, "scripture")
        self._tokens: dict[str, Any] = {}
        self._signed_in_at = 0.0

    async def expect(self, status: int, method: str, path: str, **options: Any) -> Any:
        """Return the body of a response with this status."""
        if not self._tokens or time.monotonic() - self._signed_in_at > _TOKEN_LIFETIME:
            async with DemoClient(self._context, "identity") as identity:
                self._tokens = await sign_in(identity, ADMINISTRATOR)
            self._signed_in_at = time.monotonic()
        return await self._client.expect(status, method, path, headers=bearer(self._tokens), **options)


class Editor:
    """Ingests a verse, which invalidates its cache; and adds a user, whom consumers welcome."""

    every = 8.0

    def __init__(self, context: TrafficContext) -> None:
        self._administrator = Administrator(context)

    async def act(self) -> None:
        """Act once."""
        verse = {"book": "jude", "chapter": 1, "verse": 2, "texts": {"web": f"As of {time.ctime()}."}}
        await self._administrator.expect(200, "POST", "/ingest/passages", json={"items": [verse]})
        user = str(uuid4())
        form = {"user_id": user, "email": f"{user[:8]}@example.com", "name": "A new user"}
        await self._administrator.expect(201, "POST", "/users", json=form)
        plan = random.choice(("paid", "ai"))
        await self._administrator.expect(200, "PUT", f"/users/{user}/plan", json={"plan": plan})


class PoisonPublisher:
    """Publishes one event about an unknown user: after some retries it becomes a dead letter."""

    every = 3.0

    def __init__(self, context: TrafficContext) -> None:
        self._servers = context.servers
        self._done = False

    async def act(self) -> None:
        """Act once."""
        if not self._done:
            await publish_poison(self._servers.cache_url, self._servers.queue_url)
        self._done = True
        await asyncio.sleep(3600)


async def publish_poison(cache_url: str, queue_url: str) -> str:
    """Publish an event that no consumer can handle, and return the id of its user."""
    from ephemera_services.scripture import USERS, UserCreated, catalogue

    unknown = str(uuid4())
    cache, queue = service_database(cache_url, "scripture"), service_database(queue_url, "scripture")
    async with connect(cache, catalogue, queue_url=queue, identity=IDENTITY) as store:
        await store[USERS].publish(UserCreated(user_id=unknown))
    return unknown
