"""DUR1: retries and takeovers do not wait for the end of a backlog of new events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.patterns.events import Delivery
from tests.patterns.event_fixtures import BRIEF, CATALOGUE, Registered, until, users

_HANDLING = 0.04  # seconds for each event
_BACKLOG = 250  # events for each handler: ten seconds
_IDLE = 0.7  # seconds since a dead consumer gave a sign of life
_LEASE = BRIEF.delivery.lease.total_seconds()
_FIRST_RETRY = BRIEF.delivery.first_retry.total_seconds()
_BUSY = 2.5  # seconds that a busy machine may add to what is promised


class Slow:
    """Handles events in forty milliseconds each; the user `late` fails once."""

    def __init__(self) -> None:
        self.users: list[str] = []

    async def __call__(self, event: Any, delivery: Delivery) -> None:
        """Handle an event."""
        await asyncio.sleep(_HANDLING)
        if event.user_id == "late" and delivery.attempt == 1:
            raise ValueError("once")
        self.users.append(event.user_id)


async def _abandon(store: Store, key: str) -> None:
    """Deliver what is published to a consumer that has died almost a lease ago."""
    stream, call = BRIEF.keyspace.key(name=key), store.client("queue").call
    await call("XGROUP", "CREATE", stream, "g", "0")
    read = await call("XREADGROUP", "GROUP", "g", "dead", "STREAMS", stream, ">")
    for entry_id, _ in read[stream.encode()]:
        await call("XCLAIM", stream, "g", "dead", 0, entry_id, "IDLE", round(1000 * _IDLE), "JUSTID")


@pytest.mark.parametrize(
    ("why", "concurrency", "due"),
    [
        ("it failed", 4, _HANDLING + _FIRST_RETRY),
        # The pending list is walked every quarter of a lease, give or take a quarter of that.
        ("its consumer died", 1, _LEASE - _IDLE + _LEASE / 4 * 1.25),
    ],
    ids=["failed", "abandoned"],
)
async def test_dur1_an_event_is_claimed_before_the_backlog_ends(
    server: Valkey, key: str, why: str, concurrency: int, due: float
) -> None:
    """An event that failed, or whose consumer died, is handled when it is due, after those that run then."""
    async with connect(server.url, CATALOGUE) as store:
        await store[BRIEF].publish(Registered("late"), name=key)
        if why == "its consumer died":
            await _abandon(store, key)
        await store[BRIEF].publish_many(users(_BACKLOG * concurrency), name=key)
        slow = Slow()

        async def handled() -> bool:
            return "late" in slow.users

        promised = due + 2 * _HANDLING
        async with store[BRIEF].consume("g", slow, concurrency=concurrency, name=key):
            await until(handled, within=promised + _BUSY)
    # The machine's pauses delay the others as well, so half a second of handling is generous here.
    assert slow.users.index("late") <= concurrency * (promised + 0.5) / _HANDLING
