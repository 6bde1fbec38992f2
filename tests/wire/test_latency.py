"""Latencies: every command is counted once, in the bucket of its round-trip time."""

from __future__ import annotations

import asyncio

from ephemera import embedded
from ephemera.wire import LATENCY_BOUNDS, NodeClient, open_client
from ephemera.wire._connection import Latencies


def test_buckets_include_their_upper_bounds() -> None:
    """A time equal to a bound is in that bucket; a time above all bounds is in the last."""
    latencies = Latencies()
    for seconds in (*LATENCY_BOUNDS, 2.0):
        latencies.add(seconds, 3)
    assert latencies.counts == [3] * (len(LATENCY_BOUNDS) + 1)
    assert abs(latencies.seconds - 3 * (sum(LATENCY_BOUNDS) + 2)) < 1e-9


async def test_every_answered_command_is_counted_once() -> None:
    """Alone or in a batch, also after a reconnection; a slow command is in a higher bucket."""
    with embedded.valkey(config={"enable-debug-command": "local"}) as server:
        async with open_client(server.url) as client:
            assert isinstance(client, NodeClient)
            counted = client.link.latencies
            before = sum(counted.counts)
            await asyncio.gather(*(client.call("SET", f"key:{n}", n, "EX", 60) for n in range(1000)))
            await client.call("GET", "key:1")
            # The keep-alive may have sent a PING meanwhile.
            assert 1001 <= sum(counted.counts) - before <= 1003
            slow = sum(counted.counts[LATENCY_BOUNDS.index(0.05) + 1 :])
            await client.call("DEBUG", "SLEEP", 0.12)
            assert sum(counted.counts[LATENCY_BOUNDS.index(0.1) + 1 :]) >= 1
            assert sum(counted.counts[LATENCY_BOUNDS.index(0.05) + 1 :]) > slow
            assert counted.seconds > 0.1
