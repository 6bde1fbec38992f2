"""A small service for the console to look at, inside the tests: it does what it is told, on its own loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ephemera import Catalogue, connect, sliding
from ephemera.patterns.events import Events
from ephemera.patterns.locks import Locks
from ephemera.patterns.rate_limits import RateLimits, sliding_window
from ephemera.patterns.revocation import Revocation, TokenKind
from ephemera.patterns.sessions import Sessions
from ephemera.patterns.write_behind import DeferredCounters, Flusher, Written

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractAsyncContextManager

    from ephemera import Store
    from ephemera.patterns.events import Delivery
    from ephemera.patterns.write_behind import Batch

T = TypeVar("T")


class Visitor(msgspec.Struct):
    """Who is signed in."""

    user_id: str
    email: str = "visitor@example.org"


class Letter(msgspec.Struct):
    """Something to deliver."""

    text: str


catalogue = Catalogue("postbox")
SESSIONS = Sessions(
    catalogue,
    "box:session:{session_id}",
    Visitor,
    user="user_id",
    lifetime=sliding(hours=8),
    index="box:sessions:{user_id}",
)
REVOKED = Revocation(
    catalogue,
    tokens={"access": TokenKind("box:revoked:{jti}", lives=timedelta(minutes=15))},
    users="box:revoked:user:{user_id}",
    families="box:revoked:family:{family}",
    news="box:revoked:news",
)
LETTERS = Events(catalogue, "box:letters", Letter, deliveries=1, purpose="Letters to deliver")
POSTING = sliding_window("posting", {"free": 3, "pro": 30}, per=timedelta(days=1))
LIMITS = RateLimits(catalogue, "box:limit", POSTING)
DESK = Locks(catalogue, "box:desk:{desk}", lease=timedelta(seconds=30), purpose="One clerk at a desk")
STAMPS = DeferredCounters(
    catalogue, "box:stamps", key=["desk"], measures=["sold"], purpose="Stamps sold", shards=2
)


class Till:
    """A sink that takes everything."""

    async def apply(self, batch: Batch) -> Written:
        """It has it."""
        return Written(now=True)

    async def write(self, columns: Any, rows: Any) -> None:
        """It has them."""


class LoopThread:
    """A loop that runs beside a browser's, for what tests await meanwhile."""

    def __init__(self) -> None:
        self.exits = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="beside", daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work on this loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def enter(self, opened: AbstractAsyncContextManager[T]) -> T:
        """What a context gives, until the end."""
        return self.do(self.exits.enter_async_context(opened))

    def close(self) -> None:
        """Leave what was entered, and end."""
        self.do(self.exits.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Postbox:
    """The service at work; `broken` is whether letters cannot be delivered at the moment."""

    def __init__(self, url: str, beside: LoopThread) -> None:
        self.broken = False
        self.delivered: list[str] = []
        self.do = beside.do
        self._enter = beside.enter
        self.store: Store = beside.enter(connect(url, catalogue))
        beside.enter(self.store[LETTERS].consume("carriers", self._deliver))

    def post(self, *texts: str) -> None:
        """Have letters delivered."""
        self.do(self.store[LETTERS].publish_many([Letter(text) for text in texts]))

    def sign_in(self, user: str) -> str:
        """A token."""
        return self.do(self.store[SESSIONS].create(Visitor(user)))

    def signed_in(self, token: str) -> bool:
        """Whether a token is still good."""
        return self.do(self.store[SESSIONS].get(token)) is not None

    def may_post(self, user: str, tier: str = "free") -> bool:
        """Whether a user may post once more; it counts."""
        return self.do(self.store[LIMITS].check(POSTING[tier].on(user))).allowed

    def throttle(self, user: str, tier: str = "free") -> None:
        """Have a user post until it is too much."""
        while self.may_post(user, tier):
            pass

    def hold(self, desk: str) -> None:
        """Take a lock until the end."""
        self._enter(self.store[DESK].hold(desk=desk))

    def sell(self, desk: str, stamps: int) -> None:
        """Count what was sold."""

        async def counted() -> None:
            await self.store[STAMPS].add(desk=desk, sold=stamps)

        self.do(counted())

    def settle(self) -> None:
        """Bring what was sold to the till."""
        self.do(Flusher(self.store[STAMPS], Till()).flush())

    async def _deliver(self, letter: Letter, _: Delivery) -> None:
        if self.broken:
            raise RuntimeError(f"no carrier for {letter.text}")
        self.delivered.append(letter.text)
