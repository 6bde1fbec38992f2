"""CORE19: one 0.6 s script beside 100 INCRs failed all of them, and no call had a deadline of its own."""

from __future__ import annotations

import asyncio
import time

import pytest

from ephemera import DeadlineExceeded, OutcomeUnknown, Script, Unavailable, blocking, connect, deadline
from ephemera.embedded import Valkey
from ephemera.wire import NodeClient, open_client
from ephemera.wire._slow_lane import SlowLane
from tests.wire.clients import node_client
from tests.wire.conditions import answered, eventually
from tests.wire.forwarders import forwarding

_BUSY = """
local start = os.clock()
while os.clock() - start < ARGV[1] / 1000 do end
return redis.call('INCR', KEYS[1])
"""
BUSY = Script("busy", _BUSY)
_SLOW_TIMEOUT = 0.6  # seconds after which a frozen server is noticed during a slow call
_BOUND = 3 * _SLOW_TIMEOUT + 2  # on a busy machine
_FROZEN = f"timeout=0.2&slow_timeout={_SLOW_TIMEOUT}&connect_timeout=5"


def _has_written(lane: SlowLane) -> bool:
    """Whether a call of the second connection is with the server: before that, losing it is `Unavailable`."""
    connection = None if lane._link is None else lane._link._connection
    return connection is not None and bool(connection.waiting) and not connection.out


@pytest.mark.parametrize("way", ["script", "EVAL", "timeout"])
async def test_core19_a_slow_script_does_not_fail_fast_calls(server: Valkey, key: str, way: str) -> None:
    """A script of 0.4 s beside 100 INCRs, with a timeout of 0.25 s: all 101 are answered."""
    async with node_client(server.url) as client:
        if way == "script":
            slow = client.run(BUSY, [key], [400])
        elif way == "EVAL":
            slow = client.call("EVAL", _BUSY, 1, key, 400)
        else:
            fast = Script("busy", _BUSY, is_fast=True)
            slow = client.run(fast, [key], [400], timeout=20)
        await asyncio.sleep(0.02)
        replies = await asyncio.gather(slow, *(client.call("INCR", key) for _ in range(100)))
        assert sorted(replies) == list(range(1, 102))
        assert client.connection_count == 1
        await client.call("UNLINK", key)


async def test_core19_a_slow_call_that_is_lost_fails_alone(server: Valkey, key: str) -> None:
    """When the second connection ends, the calls of the first are unaffected."""
    async with node_client(server.url) as client:
        slow = asyncio.ensure_future(client.run(BUSY, [key], [100]))
        await eventually(lambda: _has_written(client._slow_lane))
        fast = client.call("INCR", f"{key}:fast")
        client._slow_lane.drop("by a test")
        with pytest.raises(OutcomeUnknown):
            await slow
        assert await fast == 1
        assert await client.run(BUSY, [key], [0]) == 2
        await client.call("UNLINK", key, f"{key}:fast")


async def test_core19_further_slow_calls_do_not_hide_a_frozen_server(server: Valkey, key: str) -> None:
    """The silence that is expected ends, however many slow calls are made after the first."""
    async with (
        forwarding(server) as line,
        node_client(f"redis://{line.address}?{_FROZEN}") as client,
    ):
        await answered(lambda: client.run(BUSY, [key], [0]))
        line.gate.clear()
        fast, slow = client.call("GET", key), []
        async with asyncio.timeout(_BOUND):
            while not fast.done():
                slow.append(client.run(BUSY, [key], [0]))
                await asyncio.sleep(0.1)
        assert isinstance(fast.exception(), Unavailable)
        assert len(slow) > 1
        failed = await asyncio.wait_for(asyncio.gather(*slow, return_exceptions=True), _BOUND)
        assert {type(each) for each in failed} <= {OutcomeUnknown, Unavailable}


@pytest.mark.parametrize("way", ["cancelled", "late"])
async def test_core19_a_slow_call_that_is_given_up_fails_no_other(server: Valkey, key: str, way: str) -> None:
    """The server still runs it, and its silence is expected until it has answered."""
    async with node_client(server.url) as client:
        await client.run(BUSY, [key], [0])
        slow = asyncio.ensure_future(client.run(BUSY, [key], [400], timeout=0.05 if way == "late" else None))
        await eventually(lambda: _has_written(client._slow_lane))
        if way == "cancelled":
            slow.cancel()
        replies = await asyncio.gather(*(client.call("INCR", f"{key}:fast") for _ in range(10)))
        assert sorted(replies) == list(range(1, 11))
        with pytest.raises(asyncio.CancelledError if way == "cancelled" else DeadlineExceeded):
            await slow
        assert client.connection_count == 1
        await client.call("UNLINK", key, f"{key}:fast")


async def test_core19_a_frozen_server_is_noticed_during_a_slow_call(server: Valkey, key: str) -> None:
    """Silence is expected for the slow call's own time and no longer."""
    async with (
        forwarding(server) as line,
        node_client(f"redis://{line.address}?{_FROZEN}") as client,
    ):
        await answered(lambda: client.run(BUSY, [key], [0]))
        line.gate.clear()
        began = time.monotonic()
        calls = [client.run(BUSY, [key], [0]), client.call("GET", key)]
        done = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), _BOUND)
        assert [type(each) for each in done] == [OutcomeUnknown, Unavailable]
        assert time.monotonic() - began >= _SLOW_TIMEOUT
        line.gate.set()


async def test_core19_bulk_replies_do_not_delay_fast_ones(server: Valkey, key: str) -> None:
    """A large reply that trickles in on the second connection delays no call on the first."""
    async with (
        forwarding(server, piece=4096) as line,
        node_client(f"redis://{line.address}?timeout=5") as client,
    ):
        await client.call("SET", key, b"x" * 1_000_000, "EX", 60)
        await client.run(BUSY, [f"{key}:n"], [0])
        line.pause_between_pieces = 0.1  # 24 s in all
        bulk = client.call("GET", key, timeout=60)
        for _ in range(5):
            await client.call("INCR", f"{key}:n")
        assert not bulk.done()
        line.pause_between_pieces = 0.0
        assert len(await bulk) == 1_000_000


async def test_core19_a_call_has_a_deadline(server: Valkey, key: str) -> None:
    """`timeout=` fails one call, and its late reply reaches no other."""
    async with forwarding(server) as line, node_client(f"redis://{line.address}?timeout=5") as client:
        line.gate.clear()
        late = client.call("ECHO", "late", timeout=0.05)
        with pytest.raises(DeadlineExceeded, match=r"within its deadline of 0\.05 s"):
            await late
        line.gate.set()
        assert await client.call("ECHO", "next", timeout=5) == b"next"
        with pytest.raises(DeadlineExceeded):
            await client.call("BLPOP", key, 0, timeout=0.05)
        assert client.connection_count == 1


async def test_core19_a_block_has_a_deadline(server: Valkey, key: str) -> None:
    """`with deadline(...)` limits everything inside; a cancellation from outside stays one."""
    async with connect(server.url) as store:
        with deadline(5):
            assert await store.call("ECHO", "in time") == b"in time"
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"not done within 0\.05 s"), deadline(5), deadline(0.05):
            await store.call("BLPOP", key, 0)
        assert time.monotonic() - began < 5

        async def block() -> None:
            with deadline(60):
                await store.call("BLPOP", key, 0)

        task = asyncio.create_task(block())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_core19_synchronous_calls_have_deadlines(server: Valkey, key: str) -> None:
    """`timeout=` and `with deadline(...)` hold for a synchronous store, too."""
    with blocking.connect(server.url) as store:
        with deadline(5):
            assert store.call("ECHO", "in time") == b"in time"
        with pytest.raises(DeadlineExceeded), deadline(0.05):
            store.call("BLPOP", key, 0)
        with pytest.raises(DeadlineExceeded):
            store.wait(asyncio.sleep(60), timeout=0.05)
        with pytest.raises(DeadlineExceeded):
            store.call("EVAL", _BUSY, 1, key, 100, timeout=0.02)
        assert store.call("ECHO", "right") == b"right"
        with pytest.raises(DeadlineExceeded), deadline(0.05):
            store.wait(asyncio.sleep(60))


async def test_core19_blocking_connections_have_a_cap(server: Valkey, key: str) -> None:
    """One blocking command too many waits for a free connection, then fails with the name of the option."""
    url = f"{server.url}?max_blocking=2&connect_timeout=1"
    async with open_client(url) as client:
        assert isinstance(client, NodeClient)
        waiting = [asyncio.ensure_future(client.call("BLPOP", key, 60)) for _ in range(2)]
        await eventually(lambda: len(client._dedicated._busy) == 2)
        with pytest.raises(
            Unavailable, match=r"2 blocking commands are waiting already; .*max_blocking in the URL"
        ):
            await client.call("BLPOP", key, 1)
        third = asyncio.ensure_future(client.call("BLPOP", key, 60))
        await client.call("RPUSH", key, "a", "b", "c")
        assert {(await each)[1] for each in (*waiting, third)} == {b"a", b"b", b"c"}
