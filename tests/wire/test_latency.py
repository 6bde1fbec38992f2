"""Latencies: every command is counted once, in the bucket of its round-trip time."""

from __future__ import annotations

import asyncio

import pytest

from ephemera import embedded
from ephemera.wire import LATENCY_BOUNDS, Arg, LatencySample, NodeClient, open_client, pack_command
from ephemera.wire._connection import Latencies


def test_buckets_include_their_upper_bounds() -> None:
    """A time equal to a bound is in that bucket; a time above all bounds is in the last."""
    latencies = Latencies()
    for seconds in (*LATENCY_BOUNDS, 2.0):
        latencies.add(seconds, 3)
    assert latencies.counts == [3] * (len(LATENCY_BOUNDS) + 1)
    assert abs(latencies.seconds - 3 * (sum(LATENCY_BOUNDS) + 2)) < 1e-9


async def test_every_answered_command_is_counted_once() -> None:
    """Alone or in a batch, even after a reconnection; a slow command is in a higher bucket."""
    with embedded.valkey(config={"enable-debug-command": "local"}) as server:
        async with open_client(server.url) as client:
            assert isinstance(client, NodeClient)
            counted = client.link.latencies
            before = sum(counted.counts)
            await asyncio.gather(*(client.call("SET", f"key:{n}", n, "EX", 60) for n in range(1000)))
            await client.call("GET", "key:1")
            # The keep-alive may have sent a PING in the meantime.
            assert 1001 <= sum(counted.counts) - before <= 1003
            slow = sum(counted.counts[LATENCY_BOUNDS.index(0.05) + 1 :])
            await client.call("DEBUG", "SLEEP", 0.12)
            assert sum(counted.counts[LATENCY_BOUNDS.index(0.1) + 1 :]) >= 1
            assert sum(counted.counts[LATENCY_BOUNDS.index(0.05) + 1 :]) > slow
            assert counted.seconds > 0.1


def test_a_sample_of_writes_is_bounded_and_counts_all_of_them() -> None:
    """However many writes there were, a few stand for all, from the first to the last."""
    for written in (0, 7, 511, 512, 1023, 5000, 100_000):
        sample = LatencySample()
        for number in range(written):
            sample.add(pack_command(("SET", f"key:{number}", b"x" * (number % 3000), "EX", 60)), number)
        taken = sample.take()
        assert len(taken) <= 512
        assert abs(sum(each.weight for each in taken) - written) <= max(
            [each.weight for each in taken], default=0
        )
        assert [each.key for each in taken] == [b"key:%d" % each.seconds for each in taken]
        assert all(later.seconds >= written * 0.9 - 1 for later in taken[-1:])
        assert sample.take() == []


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("get", "a:1"), b"a:1"),
        (("EVALSHA", "0" * 40, 2, "first", "second", "x" * 1000), b"first"),
        (("EVALSHA", "0" * 40, 0), None),
        (("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "s:1", ">"), b"s:1"),
        (("XREADGROUP", "GROUP", "x" * 1000), None),
        (("EVAL", "return 1 " + " " * 1000, 1, "late"), None),
        (("SET", "k" * 1000, "v"), None),
        (("PING",), None),
        (("NOSUCH", b"\r\n\xff\r\n"), None),
    ],
)
def test_a_write_counts_for_the_first_key_of_its_first_command(
    words: tuple[Arg, ...], key: bytes | None
) -> None:
    """Of a command without a key, or with one that is far from its start, nothing is known."""
    sample = LatencySample()
    sample.add(pack_command(words), 0.1)
    assert [each.key for each in sample.take()] == ([] if key is None else [key])


async def test_writes_are_sampled_once_they_are_wanted() -> None:
    """A connection samples nothing by itself; then each write counts, for the first of its commands."""
    with embedded.valkey() as server:
        async with open_client(server.url) as client:
            assert isinstance(client, NodeClient)
            latencies = client.link.latencies
            await client.call("SET", "before", 1, "EX", 60)
            assert latencies.sample is None
            latencies.sample = LatencySample()
            await client.call("GET", "a")
            await asyncio.gather(client.call("GET", "b"), client.call("GET", "c"))
            assert [each.key for each in latencies.sample.take()] == [b"a", b"b"]
