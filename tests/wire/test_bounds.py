"""Limits: large values, and more callers than may be in flight."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from typing import Any

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import ServerError, Unavailable
from ephemera.wire._connection import Connection
from tests.wire.clients import connection_of, node_client
from tests.wire.forwarders import forwarding

_MEGABYTE = 1024 * 1024


@pytest.mark.on_both_loops
async def test_a_64_megabyte_value(server: Valkey, key: str) -> None:
    """A value of 64 MB is written and read while others are served, with the default timeout."""
    value = bytes(range(256)) * (64 * 4096)
    async with node_client(server.url) as client:
        written = asyncio.ensure_future(client.call("SET", key, value))
        others = [client.call("ECHO", f"{n}") for n in range(100)]
        assert await asyncio.gather(*others) == [b"%d" % n for n in range(100)]
        assert await written == b"OK"
        assert await client.call("GET", key) == value
        await client.call("UNLINK", key)
        assert client.link.connection_count == 1


class _Peak:
    """The most that was ever in flight on a connection, measured at each write."""

    def __init__(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.bytes = 0
        flush = type(connection).write

        def watched(flushed: Connection) -> None:
            self.calls = max(self.calls, len(flushed.waiting))
            self.bytes = max(self.bytes, flushed._bytes)
            flush(flushed)

        monkeypatch.setattr(type(connection), "write", watched)


async def test_a_million_calls_are_bounded_by_the_limit(
    server: Valkey, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million calls made at once no more than the limit are in flight, and each gets its own reply."""
    async with node_client(f"{server.url}?max_in_flight=1000") as client:
        await client.call("SET", key, b"".join(b"%07d" % n for n in range(1_000_000)))
        connection = connection_of(client)
        peak = _Peak(connection, monkeypatch)
        gc.disable()  # with a million futures the collector would be the slowest part of this test
        try:
            calls = [client.call("GETRANGE", key, at, at + 6) for at in range(0, 7_000_000, 7)]
            assert len(connection._queued) > 990_000
            for n, call in enumerate(calls):
                assert int(await call) == n
        finally:
            gc.enable()
        assert peak.calls == 1000
        assert (len(connection.waiting), len(connection._queued), connection._bytes) == (0, 0, 0)
        await client.call("UNLINK", key)


async def _replies(calls: list[Any]) -> list[bytes]:
    """The replies in order; cheaper than gather, as the last call is also the last to be answered."""
    return [await call for call in calls]


async def test_a_waiting_call_keeps_only_its_arguments(
    server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers at the limit keep their arguments and a future, not packed commands."""
    async with node_client(f"{server.url}?max_in_flight=10") as client:
        value = b"x" * 10_000
        tracemalloc.start()
        try:
            calls = [client.call("ECHO", value) for _ in range(20_000)]
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 20_000 * 600
        assert set(await _replies(calls)) == {value}


async def test_bytes_in_flight_are_bounded(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes in flight exceed their limit by one command at most."""
    async with node_client(f"{server.url}?max_in_flight_bytes={_MEGABYTE}") as client:
        peak = _Peak(connection_of(client), monkeypatch)
        value = b"y" * 100_000
        assert set(await _replies([client.call("ECHO", value) for _ in range(300)])) == {value}
        assert _MEGABYTE - 100_000 < peak.bytes < _MEGABYTE + 101_000


async def test_waiting_calls_are_served_in_order(server: Valkey) -> None:
    """Callers above the limit are served first come, first served."""
    async with node_client(f"{server.url}?max_in_flight=3") as client:
        order: list[int] = []

        async def ask(n: int) -> None:
            await client.call("ECHO", n)
            order.append(n)

        await asyncio.gather(*(ask(n) for n in range(500)))
        assert order == sorted(order)


async def test_a_call_cancelled_while_it_waits_is_not_sent(server: Valkey) -> None:
    """Commands of callers cancelled at the limit are never sent, and delay no other."""
    async with node_client(f"{server.url}?max_in_flight=5") as client:
        await client.call("DEL", "bounds:sent")
        calls: list[Any] = [client.call("RPUSH", "bounds:sent", n) for n in range(1000)]
        for call in calls[5:]:
            if calls.index(call) % 3:
                call.cancel()
        replies = await asyncio.gather(*calls, return_exceptions=True)
        served = [n for n, reply in enumerate(replies) if isinstance(reply, int)]
        assert served == [n for n in range(1000) if n < 5 or n % 3 == 0]
        assert await client.call("LRANGE", "bounds:sent", 0, -1) == [b"%d" % n for n in served]


@pytest.mark.parametrize("wrong", [object(), "\ud800"])
async def test_an_argument_that_cannot_be_sent_while_waiting(server: Valkey, wrong: Any) -> None:
    """An argument that cannot be packed fails its own caller, even at the limit."""
    async with node_client(f"{server.url}?max_in_flight=2") as client:
        calls = [client.call("ECHO", n) for n in range(10)]
        bad = client.call("GET", wrong)
        after = client.call("ECHO", "after")
        assert await _replies(calls) == [b"%d" % n for n in range(10)]
        with pytest.raises((TypeError, ValueError)):
            await bad
        assert await after == b"after"
        assert client.link.connection_count == 1


async def test_errors_make_room_too(server: Valkey, key: str) -> None:
    """A limit of one is enough for any mix of replies and errors."""
    async with node_client(f"{server.url}?max_in_flight=1") as client:
        await client.call("SET", key, "text")
        calls = [client.call("INCR" if n % 2 else "GET", key) for n in range(200)]
        replies = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(reply) for reply in replies] == [bytes, ServerError] * 100


async def test_many_errors_take_a_few_times_as_long_as_replies(server: Valkey, key: str) -> None:
    """Very many errors at once, as after a fail-over, take at most a few times as long as replies."""
    async with node_client(server.url) as client:
        await client.call("SET", key, "text")

        async def seconds(*words: str) -> float:
            begun = time.perf_counter()
            await asyncio.gather(*(client.call(*words) for _ in range(20_000)), return_exceptions=True)
            return time.perf_counter() - begun

        replies = min([await seconds("GET", key) for _ in range(3)])
        errors = min([await seconds("LPUSH", key, "x") for _ in range(3)])
        assert errors < 8 * replies
        await client.call("DEL", key)


async def test_waiting_calls_fail_when_the_connection_ends(server: Valkey) -> None:
    """When a connection at its limit is lost, waiting calls fail at once as not executed."""
    async with forwarding(server) as forwarder:
        async with node_client(f"redis://{forwarder.address}?max_in_flight=10") as client:
            forwarder.gate.clear()
            calls = [client.call("INCR", "bounds:lost") for _ in range(1000)]
            await asyncio.sleep(0)
            forwarder.cut()
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(error, Unavailable) for error in errors) == 990
