"""Visitors of scripture: who reads, who asks, who takes content in, and an event that nobody can handle."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any
from uuid import uuid4

from ephemera.keyspace import connect
from ephemera_services.demo.claims import MARK
from ephemera_services.demo.flag_errors import database_of
from ephemera_services.demo.process_plan import ADMINISTRATOR
from ephemera_services.demo.traffic.identity import bearer, sign_in
from ephemera_services.demo.visitors import Scene, Visitor

_PASSAGES = ("john.3.16", "gen.1.1", "gen.1.3", "ps.23.1", "ps.23.4", "1cor.13.4", "john.1.1")
_QUESTIONS = (
    "What is said about love?",
    "What is said of love?",
    "Who is my shepherd?",
    "What was in the beginning?",
    "Where does light come from?",
)
_TOKEN_LIVES = 600.0  # seconds; a little less than it does


class Scholars:
    """Reads: most of it from the cache."""

    every = 0.6

    def __init__(self, scene: Scene) -> None:
        self._visitor = Visitor(scene, "scripture")

    async def act(self) -> None:
        """Come once."""
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
        await self._visitor.ask("GET", path)  # sometimes too many: that is to be seen as well


class Asker:
    """Asks: often the same, or nearly the same, as somebody before."""

    every = 5.0

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def act(self) -> None:
        """Come once."""
        async with Visitor(self._scene, "scripture") as visitor:
            await visitor.ask("POST", "/ai/ask", json={"question": random.choice(_QUESTIONS)})


class Administrator:
    """The administrator, by a token of identity that is used until it is old."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._visitor = Visitor(scene, "scripture")
        self._tokens: dict[str, Any] = {}
        self._since = 0.0

    async def want(self, status: int, method: str, path: str, **more: Any) -> Any:
        """The body of an answer."""
        if not self._tokens or time.monotonic() - self._since > _TOKEN_LIVES:
            async with Visitor(self._scene, "identity") as identity:
                self._tokens = await sign_in(identity, ADMINISTRATOR)
            self._since = time.monotonic()
        return await self._visitor.want(status, method, path, headers=bearer(self._tokens), **more)


class Editor:
    """Takes a verse in, which ends what is cached of it; and adds a user, whom consumers welcome."""

    every = 8.0

    def __init__(self, scene: Scene) -> None:
        self._administrator = Administrator(scene)

    async def act(self) -> None:
        """Come once."""
        verse = {"book": "jude", "chapter": 1, "verse": 2, "texts": {"web": f"As of {time.ctime()}."}}
        await self._administrator.want(200, "POST", "/ingest/passages", json={"items": [verse]})
        user = str(uuid4())
        form = {"user_id": user, "email": f"{user[:8]}@example.com", "name": "Somebody"}
        await self._administrator.want(201, "POST", "/users", json=form)
        plan = random.choice(("paid", "ai"))
        await self._administrator.want(200, "PUT", f"/users/{user}/plan", json={"plan": plan})


class LostUser:
    """Publishes, once, an event about a user who is not there: tried some times, it becomes a dead letter."""

    every = 3.0

    def __init__(self, scene: Scene) -> None:
        self._servers = scene.servers
        self._done = False

    async def act(self) -> None:
        """Come once."""
        if not self._done:
            await publish_poison(self._servers.cache_url, self._servers.queue_url)
        self._done = True
        await asyncio.sleep(3600)


async def publish_poison(cache_url: str, queue_url: str) -> str:
    """Publish an event that no consumer can handle; its user's id."""
    from ephemera_services.scripture import USERS, UserCreated, catalogue

    lost = str(uuid4())
    cache, queue = database_of(cache_url, "scripture"), database_of(queue_url, "scripture")
    async with connect(cache, catalogue, queue_url=queue, identity=MARK) as store:
        await store[USERS].publish(UserCreated(user_id=lost))
    return lost
