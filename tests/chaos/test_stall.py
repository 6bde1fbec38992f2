"""A server that hangs without closing anything: detected in time, and used again when it resumes."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from pathlib import Path

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed, OutcomeUnknown, Unavailable
from ephemera.wire import NodeClient
from tests.wire.certificates import Authority
from tests.wire.clients import node_client
from tests.wire.conditions import answered, eventually
from tests.wire.forwarders import forwarding

_TIMEOUT = 0.25  # seconds, the default
_SLACK = 3.0  # seconds by which a busy machine may delay a test


async def _failure(client: NodeClient, *words: str) -> tuple[float, ConnectionFailed]:
    """How long a call took to fail, and with what."""
    begun = time.perf_counter()
    with pytest.raises(ConnectionFailed) as caught:
        await client.call(*words)
    return time.perf_counter() - begun, caught.value


@pytest.mark.on_both_loops
async def test_a_frozen_server_is_detected_in_time_and_used_again(victim: Valkey) -> None:
    """SIGSTOP: first calls fail after the timeout, later ones under 1 ms; SIGCONT: back soon."""
    async with node_client(victim.url) as client:
        load = [asyncio.create_task(_load(client, name)) for name in range(20)]
        await eventually(lambda: all(task.get_name() == "loaded" for task in load))
        victim.pause()
        await asyncio.sleep(0)
        failures = await asyncio.gather(*(_failure(client, "GET", "x") for _ in range(10)))
        assert max(took for took, _ in failures) < _TIMEOUT + _SLACK
        await asyncio.gather(*load)

        down = [await _failure(client, "GET", "x") for _ in range(200)]
        assert statistics.median(took for took, _ in down) < 0.001
        await asyncio.sleep(1)  # long enough for attempts to reconnect to fail, and their pauses to grow
        down = [await _failure(client, "INCR", "x") for _ in range(200)]
        assert statistics.median(took for took, _ in down) < 0.001
        assert {type(error) for _, error in down} == {Unavailable}

        victim.resume()
        await answered(lambda: client.call("SET", "x", "1"))
        assert await client.call("GET", "x") == b"1"


async def _load(client: NodeClient, name: int) -> None:
    """Call until it fails, as it must when the server freezes."""
    with pytest.raises(ConnectionFailed, match="no answer for 250 ms"):
        await _echo(client, name)


async def _echo(client: NodeClient, name: int) -> None:
    task = asyncio.current_task()
    assert task is not None
    while True:
        assert await client.call("ECHO", f"{name}") == b"%d" % name
        task.set_name("loaded")


async def test_outcomes_after_a_freeze(victim: Valkey) -> None:
    """Commands sent to a server that froze fail as unknown if they write, as unavailable if they read."""
    async with node_client(f"{victim.url}?max_in_flight=2") as client:
        await client.call("PING")
        victim.pause()
        calls = [client.call("INCR", "x"), client.call("GET", "x"), client.call("INCR", "y")]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in errors] == [OutcomeUnknown, Unavailable, Unavailable]
        assert not client.up


async def test_a_frozen_server_is_detected_without_calls(victim: Valkey) -> None:
    """An idle connection is pinged every second, so a frozen server is known before the next call."""
    async with node_client(victim.url) as client:
        victim.pause()
        await eventually(lambda: not client.up, within=1 + _TIMEOUT + _SLACK)
        victim.resume()
        await eventually(lambda: client.up)


@pytest.mark.on_both_loops
@pytest.mark.parametrize("held_up_by", ["a callback", "a reader"])
async def test_a_blocked_loop_is_not_a_stall(server: Valkey, held_up_by: str) -> None:
    """A loop blocked by its own work for longer than the timeout does not fail the server, however often."""
    async with node_client(server.url) as client:
        for value in ("first", "second"):
            reply = asyncio.ensure_future(client.call("ECHO", value))
            if held_up_by == "a callback":
                asyncio.get_running_loop().call_soon(time.sleep, 2 * _TIMEOUT)
            else:
                _read_slowly(2 * _TIMEOUT)
            assert await reply == value.encode()
        assert client.link.connection_count == 1


@pytest.mark.on_both_loops
async def test_a_suspended_machine_is_not_a_stall(victim: Valkey) -> None:
    """When client and server are suspended and the client resumes first, the server may still answer."""
    async with node_client(victim.url) as client:
        for value in ("first", "second"):
            victim.pause()
            reply = asyncio.ensure_future(client.call("ECHO", value))
            await asyncio.sleep(0)  # it is sent
            time.sleep(2 * _TIMEOUT)
            asyncio.get_running_loop().call_later(0.05, victim.resume)
            assert await reply == value.encode()
        assert client.link.connection_count == 1


async def test_a_hang_while_the_loop_is_blocked_is_detected(victim: Valkey) -> None:
    """The server gets its timeout once more, and not again and again."""
    async with node_client(victim.url) as client:
        victim.pause()
        reply = asyncio.ensure_future(client.call("ECHO", "lost"))
        await asyncio.sleep(0)
        time.sleep(2 * _TIMEOUT)
        with pytest.raises(ConnectionFailed, match="no answer for 250 ms"):
            async with asyncio.timeout(10 * _TIMEOUT + _SLACK):
                await reply


def _read_slowly(seconds: float) -> None:
    """Block the loop where it reads: uvloop then runs its timers before it reads what has arrived."""
    loop = asyncio.get_running_loop()
    here, there = socket.socketpair()

    def read() -> None:
        loop.remove_reader(here)
        time.sleep(seconds)
        here.close()
        there.close()

    loop.add_reader(here, read)
    there.send(b"x")


@pytest.mark.on_both_loops
async def test_a_loop_blocked_between_timers_is_not_a_stall(server: Valkey) -> None:
    """A loop that stutters, again and again, with calls always in flight, keeps its connection."""
    async with node_client(server.url) as client:
        done = asyncio.Event()

        async def stutter() -> None:
            for _ in range(4):
                time.sleep(1.2 * _TIMEOUT)
                await asyncio.sleep(0)
            done.set()

        stuttering = asyncio.create_task(stutter())
        while not done.is_set():
            assert await asyncio.gather(*(client.call("ECHO", n) for n in range(50)))
        await stuttering
        assert client.link.connection_count == 1


@pytest.mark.on_both_loops
@pytest.mark.parametrize("way", ["there", "back", "there with TLS"])
async def test_a_slow_line_is_not_a_stall(server: Valkey, tmp_path: Path, way: str) -> None:
    """A value that takes much longer than the timeout to transfer is waited for, since it makes progress."""
    authority = Authority(tmp_path, "ours") if "TLS" in way else None
    context = authority.server_context("127.0.0.1") if authority else None
    value = b"z" * 6_000_000
    async with forwarding(server, tls=context) as forwarder:
        secured = f"rediss://{forwarder.address}?ca={authority.ca}" if authority else ""
        async with (
            node_client(secured or f"redis://{forwarder.address}") as client,
            node_client(server.url) as direct,
        ):
            await direct.call("SET", "stall:slow", value)
            words = ("GET", "stall:slow") if way == "back" else ("SET", "stall:slow", value)
            forwarder.pause_between_pieces = 0.008
            begun = time.perf_counter()
            assert await client.call(*words) in (value, b"OK")
            assert time.perf_counter() - begun > 2 * _TIMEOUT
            assert client.link.connection_count == 1
            forwarder.pause_between_pieces = 0
            await client.call("UNLINK", "stall:slow")


async def test_a_server_that_freezes_in_the_middle_of_a_large_write(victim: Valkey) -> None:
    """A large write to a frozen server stops moving soon, and fails in time."""
    async with node_client(victim.url) as client:
        victim.pause()
        begun = time.perf_counter()
        with pytest.raises(OutcomeUnknown, match="no answer for 250 ms"):
            await client.call("SET", "x", b"z" * 30_000_000)
        assert time.perf_counter() - begun < 2 * _TIMEOUT + _SLACK  # the kernel takes some of it


async def test_a_black_hole_is_detected(server: Valkey) -> None:
    """A line that drops everything silently is a stall as well; the next connection works."""
    async with forwarding(server) as forwarder, node_client(f"redis://{forwarder.address}") as client:
        forwarder.gate.clear()
        took, error = await _failure(client, "GET", "x")
        assert took < _TIMEOUT + _SLACK
        assert isinstance(error, Unavailable)
        forwarder.gate.set()
        await answered(lambda: client.call("PING"))
