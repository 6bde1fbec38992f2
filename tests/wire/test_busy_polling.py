"""The loop stays awake for the reply to a single command, briefly, and not where replies come late."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Any

from ephemera.wire._busy_polling import BusyPolling
from ephemera.wire._node_client import NodeClient


class CountingLoop:
    """The running loop, which counts what it is asked to run soon."""

    def __init__(self) -> None:
        self.turns = 0
        self._loop = asyncio.get_running_loop()

    def call_soon(self, callback: Callable[..., Any]) -> None:
        """Run it in the next turn."""
        self.turns += 1
        self._loop.call_soon(callback)


async def _turns(loop: CountingLoop, polling: BusyPolling) -> int:
    """The turns after a write whose reply does not come within the time that the loop is kept awake."""
    before = loop.turns
    polling.start(monotonic())
    await asyncio.sleep(0.005)
    return loop.turns - before


async def test_after_a_late_reply_it_rests_ever_longer() -> None:
    """The loop sleeps again after microseconds; it then stays asleep for 100 replies, then for 200."""
    loop: Any = CountingLoop()
    polling = BusyPolling(loop, [b"a reply that is late"])
    assert await _turns(loop, polling) > 0
    for rest in (100, 200):
        before = loop.turns
        for _ in range(rest):
            polling.start(monotonic())
        await asyncio.sleep(0.005)
        assert loop.turns == before
        assert await _turns(loop, polling) > 0


async def test_a_reply_ends_it() -> None:
    """With the reply there the loop may sleep at once, and the next write keeps it awake again."""
    loop: Any = CountingLoop()
    waiting = deque([b"a reply"])
    polling = BusyPolling(loop, waiting)
    for _ in range(3):
        polling.start(monotonic() + 3600)
        await asyncio.sleep(0)
        waiting.clear()
        for _ in range(3):
            await asyncio.sleep(0)
        ended = loop.turns
        await asyncio.sleep(0.005)
        assert loop.turns == ended
        waiting.append(b"the next")


async def test_waiting_for_a_slow_command_takes_no_processor_time(client: NodeClient) -> None:
    """While a script runs for 300 ms on the server, the client sleeps."""
    script = (
        "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end "
        "local done = now() + 300000 repeat until now() > done"
    )
    await client.call("EVAL", "return 1", 0)
    busy, began = thread_time(), monotonic()
    await client.call("EVAL", script, 0)
    assert monotonic() - began > 0.25
    assert thread_time() - busy < 0.1
