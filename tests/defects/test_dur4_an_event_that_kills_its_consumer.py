"""DUR4: an event that kills its consumers becomes a dead letter alone, without the others of its batch."""

from __future__ import annotations

import asyncio
import os
import signal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera.patterns.events import Delivery
from tests.patterns.event_fixtures import BRIEF, CATALOGUE, Registered, settled, users

_OTHERS = [str(number) for number in range(9)]


class Slow:
    """A handler that takes a moment, and remembers how many of it ran at once."""

    def __init__(self) -> None:
        self.users: list[str] = []
        self.most = self._running = 0

    async def __call__(self, event: Any, _delivery: Delivery) -> None:
        """Handle an event."""
        self._running += 1
        self.most = max(self.most, self._running)
        await asyncio.sleep(0.02)
        self._running -= 1
        self.users.append(event.user_id)


def consume_until_killed(url: str, key: str, file: str) -> None:
    """A process that notes the users of events in a file, and that the user `deadly` kills."""
    asyncio.run(_consume_until_killed(url, key, file))


async def _consume_until_killed(url: str, key: str, file: str) -> None:
    notes = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def handle(event: Any, _delivery: Delivery) -> None:
        if event.user_id == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.02)
        os.write(notes, event.user_id.encode() + b"\n")

    async with connect(url, CATALOGUE) as store, store[BRIEF].consume("g", handle, name=key):
        await asyncio.Event().wait()


async def test_dur4_the_rest_of_the_batch_is_handled(server: Valkey, key: str, tmp_path: Path) -> None:
    """After three processes were killed there is one dead letter, and the others are handled once each."""
    notes, processes = tmp_path / "handled", get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    last = Slow()
    async with connect(server.url, CATALOGUE) as store:
        await store[BRIEF].publish_many([*users(4), Registered("deadly"), *users(9)[4:]], name=key)
        for _ in range(BRIEF.delivery.max_deliveries):
            process = processes.Process(
                target=consume_until_killed, args=(server.url, key, str(notes)), daemon=True
            )
            process.start()
            await asyncio.to_thread(process.join, 30)
            assert process.exitcode == -signal.SIGKILL
        async with store[BRIEF].consume("g", last, name=key):
            await settled(store, BRIEF, name=key)
        (letter,) = await store[BRIEF].dead_letters(name=key)
    assert (letter.event["user_id"], letter.deliveries) == ("deadly", BRIEF.delivery.max_deliveries)
    handled = notes.read_text().split()
    assert handled, "the second process handles what comes before the deadly event"
    assert sorted(handled + last.users) == _OTHERS


async def test_dur4_abandoned_events_are_handled_one_at_a_time(server: Valkey, key: str) -> None:
    """Of the events of a dead consumer one runs at a time, however many handlers are idle."""
    async with connect(server.url, CATALOGUE) as store:
        stream, call = BRIEF.keyspace.key(name=key), store.client("queue").call
        await store[BRIEF].publish_many(users(6), name=key)
        await call("XGROUP", "CREATE", stream, "g", "0")
        await call("XREADGROUP", "GROUP", "g", "dead", "STREAMS", stream, ">")
        handler = Slow()
        async with store[BRIEF].consume("g", handler, name=key):
            await settled(store, BRIEF, name=key)
    assert sorted(handler.users) == [str(number) for number in range(6)]
    assert handler.most == 1
