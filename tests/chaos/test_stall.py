"""A server that stops answering without closing anything: noticed in time, failed fast, resumed by itself."""

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
_HELD_UP = 3.0  # seconds by which a busy machine may delay a test


async def _failure(client: NodeClient, *words: str) -> tuple[float, ConnectionFailed]:
    """How long a call took to fail, and with what."""
    begun = time.perf_counter()
    with pytest.raises(ConnectionFailed) as caught:
        await client.call(*words)
    return time.perf_counter() - begun, caught.value


@pytest.mark.on_both_loops
async def test_a_frozen_server_is_noticed_in_time_and_resumed(victim: Valkey) -> None:
    """SIGSTOP: first calls fail after the timeout, later ones under 1 ms; SIGCONT: back soon."""
    async with node_client(victim.url) as client:
        load = [asyncio.create_task(_load(client, name)) for name in range(20)]
        await eventually(lambda: all(task.get_name() == "loaded" for task in load))
        victim.pause()
        await asyncio.sleep(0)
        failures = await asyncio.gather(*(_failure(client, "GET", "x") for _ in range(10)))
        assert max(took for took, _ in failures) < _TIMEOUT + _HELD_UP
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


async def test_what_a_frozen_server_leaves_unknown(victim: Valkey) -> None:
    """What was sent to a server that froze fails as unknown if it is a write, as unavailable if a read."""
    async with node_client(f"{victim.url}?max_in_flight=2") as client:
        await client.call("PING")
        victim.pause()
        calls = [client.call("INCR", "x"), client.call("GET", "x"), client.call("INCR", "y")]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in errors] == [OutcomeUnknown, Unavailable, Unavailable]
        assert not client.up


async def test_a_frozen_server_is_noticed_while_nobody_calls(victim: Valkey) -> None:
    """An idle connection is asked after every second, so the first caller need not find out."""
    async with node_client(victim.url) as client:
        victim.pause()
        await eventually(lambda: not client.up, within=1 + _TIMEOUT + _HELD_UP)
        victim.resume()
        await eventually(lambda: client.up)


@pytest.mark.on_both_loops
@pytest.mark.parametrize("held_up_by", ["a callback", "a reader"])
async def test_a_loop_that_is_held_up_is_no_stall(server: Valkey, held_up_by: str) -> None:
    """A loop blocked by its own work for longer than the timeout does not blame the server, however often."""
    async with node_client(server.url) as client:
        for value in ("first", "second"):
            reply = asyncio.ensure_future(client.call("ECHO", value))
            if held_up_by == "a callback":
                asyncio.get_running_loop().call_soon(time.sleep, 2 * _TIMEOUT)
            else:
                _read_slowly(2 * _TIMEOUT)
            assert await reply == value.encode()
        assert client.link.connects == 1


@pytest.mark.on_both_loops
async def test_a_machine_that_stood_still_is_no_stall(victim: Valkey) -> None:
    """Client and server are held up together, and the client goes on first: the server may still answer."""
    async with node_client(victim.url) as client:
        for value in ("first", "second"):
            victim.pause()
            reply = asyncio.ensure_future(client.call("ECHO", value))
            await asyncio.sleep(0)  # it is sent
            time.sleep(2 * _TIMEOUT)
            asyncio.get_running_loop().call_later(0.05, victim.resume)
            assert await reply == value.encode()
        assert client.link.connects == 1


async def test_a_server_that_hangs_while_the_loop_is_held_up_is_noticed(victim: Valkey) -> None:
    """It gets its time once more, and not again and again."""
    async with node_client(victim.url) as client:
        victim.pause()
        reply = asyncio.ensure_future(client.call("ECHO", "lost"))
        await asyncio.sleep(0)
        time.sleep(2 * _TIMEOUT)
        with pytest.raises(ConnectionFailed, match="no answer for 250 ms"):
            async with asyncio.timeout(10 * _TIMEOUT + _HELD_UP):
                await reply


def _read_slowly(seconds: float) -> None:
    """Hold the loop up where it reads: uvloop then looks at its timers before it reads what has come."""
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
async def test_a_loop_held_up_between_timers_is_no_stall(server: Valkey) -> None:
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
        assert client.link.connects == 1


@pytest.mark.on_both_loops
@pytest.mark.parametrize("way", ["there", "back", "there with TLS"])
async def test_a_slow_line_is_no_stall(server: Valkey, tmp_path: Path, way: str) -> None:
    """A value that takes much longer than the timeout to get through is waited for, since it moves."""
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
            assert client.link.connects == 1
            forwarder.pause_between_pieces = 0
            await client.call("UNLINK", "stall:slow")


async def test_a_server_that_freezes_in_the_middle_of_a_large_write(victim: Valkey) -> None:
    """A large write to a frozen server stops moving soon, and is given up in time."""
    async with node_client(victim.url) as client:
        victim.pause()
        begun = time.perf_counter()
        with pytest.raises(OutcomeUnknown, match="no answer for 250 ms"):
            await client.call("SET", "x", b"z" * 30_000_000)
        assert time.perf_counter() - begun < 2 * _TIMEOUT + _HELD_UP  # the kernel takes some of it meanwhile


async def test_a_forgotten_line_is_noticed(server: Valkey) -> None:
    """A line that swallows everything, without a word, is a stall as well; the next line serves."""
    async with forwarding(server) as forwarder, node_client(f"redis://{forwarder.address}") as client:
        forwarder.gate.clear()
        took, error = await _failure(client, "GET", "x")
        assert took < _TIMEOUT + _HELD_UP
        assert isinstance(error, Unavailable)
        forwarder.gate.set()
        await answered(lambda: client.call("PING"))
