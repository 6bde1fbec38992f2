"""Events for tests, with long and short leases; handlers, and conditions to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec

from ephemera import Catalogue, Store
from ephemera.patterns.events import Delivery, DeliveryPolicy, Events


class Registered(msgspec.Struct, tag=True, frozen=True):
    """A user has registered."""

    user_id: str
    email: str = ""


class Removed(msgspec.Struct, tag=True, frozen=True):
    """A user has left."""

    user_id: str


Account = Registered | Removed

CATALOGUE = Catalogue("test-events")
ACCOUNTS: Events[Account] = Events(
    CATALOGUE, "accounts:{name}", Account, purpose="Accounts that came and went"
)
BRIEF: Events[Account] = Events(
    CATALOGUE,
    "brief:{name}",
    Account,
    purpose="Events that are soon taken over, and soon dead",
    delivery=DeliveryPolicy(
        max_deliveries=3,
        first_retry=timedelta(milliseconds=50),
        lease=timedelta(milliseconds=800),
        max_dead_letters=50,
    ),
)
KEPT: Events[Account] = Events(
    CATALOGUE,
    "kept:{name}",
    Account,
    purpose="Events of slow handlers",
    delivery=DeliveryPolicy(lease=timedelta(seconds=2.4)),
)
ALONE = Events(CATALOGUE, "events-of-all:here", Removed, purpose="The only stream of its kind")


class Seen:
    """A handler that remembers its events; `fails` says which of them raise, and what."""

    def __init__(self, fails: Callable[[Any, Delivery], BaseException | None] | None = None) -> None:
        self.events: list[Any] = []
        self.deliveries: list[Delivery] = []
        self._fails = fails

    async def __call__(self, event: Any, delivery: Delivery) -> None:
        """Handle an event."""
        self.events.append(event)
        self.deliveries.append(delivery)
        problem = self._fails and self._fails(event, delivery)
        if problem:
            raise problem

    @property
    def users(self) -> list[str]:
        """The users of the events."""
        return [event.user_id for event in self.events]


def users(count: int) -> list[Registered]:
    """A number of registrations."""
    return [Registered(str(number)) for number in range(count)]


async def until(condition: Callable[[], Awaitable[Any]], within: float = 60.0) -> float:
    """Return the seconds until an awaited condition held; fail when it took more than `within`."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not await condition():
        assert loop.time() - begun < within, f"not within {within} s"
        await asyncio.sleep(0.002)
    return loop.time() - begun


async def settled(store: Store, events: Events[Any], within: float = 60.0, **fields: Any) -> None:
    """Wait until every group of a stream has handled everything."""

    async def all_done() -> bool:
        groups = (await store[events].info(**fields)).groups
        return bool(groups) and all(group.pending == 0 and group.lag == 0 for group in groups)

    await until(all_done, within)


async def pending_of(store: Store, events: Events[Any], group: str, **fields: Any) -> list[Any]:
    """The pending entries of a group by XPENDING: id, consumer, idle milliseconds, deliveries."""
    found = await store.client("queue").call("XPENDING", events.keys(fields)[0], group, "-", "+", 1000)
    return list(found)
