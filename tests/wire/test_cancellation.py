"""Cancelled callers: their replies are dropped, no caller gets another's, the connection stays."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from ephemera.embedded import Valkey
from ephemera.wire import NodeClient
from tests.wire.clients import connection_of, node_client

_CANCELLATIONS = 100_000


async def _echo(client: NodeClient, value: str) -> None:
    """Ask for a unique value, and check that the reply is that value."""
    assert await client.call("ECHO", value) == value.encode()


@pytest.mark.on_both_loops
async def test_a_hundred_thousand_cancellations_affect_no_other_caller(server: Valkey) -> None:
    """Callers cancelled at random moments cost no other caller its reply, and no reconnection."""
    async with node_client(server.url) as client:
        stopped = asyncio.Event()
        honest = [asyncio.create_task(_honest(client, name, stopped)) for name in range(8)]
        cancelled = 0
        while cancelled < _CANCELLATIONS:
            cancelled += await _cancel_at_random(client, cancelled)
        stopped.set()
        served = await asyncio.gather(*honest)
        assert min(served) > 100
        assert client.link.connection_count == 1


async def _honest(client: NodeClient, name: int, stopped: asyncio.Event) -> int:
    count = 0
    while not stopped.is_set():
        await _echo(client, f"honest {name} {count}")
        count += 1
    return count


async def _cancel_at_random(client: NodeClient, base: int) -> int:
    """Start callers and cancel most: some before they are sent, some in flight, some as replies arrive."""
    calls = [asyncio.ensure_future(_echo(client, f"{base} {n}")) for n in range(500)]
    cancelled = 0
    while calls:
        for _ in range(random.randrange(3)):
            await asyncio.sleep(0)
        for _ in range(random.randrange(1, 120)):
            if calls:
                cancelled += calls.pop(random.randrange(len(calls))).cancel()
    return cancelled


async def test_the_reply_of_a_cancelled_future_is_dropped(client: NodeClient) -> None:
    """When every second future of a batch is cancelled, each of the others gets its own reply."""
    futures: list[Any] = [client.call("ECHO", f"value {n}") for n in range(1000)]
    for future in futures[::2]:
        future.cancel()
    replies = await asyncio.gather(*futures, return_exceptions=True)
    assert replies[1::2] == [f"value {n}".encode() for n in range(1, 1000, 2)]
    assert all(isinstance(reply, asyncio.CancelledError) for reply in replies[::2])


async def test_timed_out_callers_leave_no_trace(client: NodeClient) -> None:
    """`asyncio.timeout` around a call leaves nothing in the connection's queue once the reply has arrived."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await client.call("GET", "anything")
    await client.call("PING")
    connection = connection_of(client)
    assert (len(connection.waiting), connection._bytes) == (0, 0)
    assert client.link.connection_count == 1


async def test_error_replies_of_cancelled_callers_are_dropped(client: NodeClient, key: str) -> None:
    """A cancelled caller's error reply is dropped."""
    await client.call("SET", key, "text")
    wrong: Any = client.call("INCR", key)
    right = client.call("GET", key)
    wrong.cancel()
    assert await right == b"text"
