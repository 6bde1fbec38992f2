"""Subscriptions and tracking over a restart: every gap is reported, and later messages arrive."""

from __future__ import annotations

import asyncio

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed
from ephemera.wire import Invalidations, Message
from tests.wire.clients import node_client
from tests.wire.conditions import eventually


@pytest.mark.on_both_loops
async def test_a_restart_is_reported_on_every_channel(victim: Valkey) -> None:
    """After a restart each subscriber gets a mark on each of its channels, then new messages."""
    async with node_client(victim.url) as client:
        async with client.subscribe("a", "b") as plain, client.subscribe("p*", kind="pattern") as pattern:
            victim.kill()
            await asyncio.to_thread(victim.restart)
            marks = {await asyncio.wait_for(anext(plain), 60) for _ in range(2)}
            assert marks == {Message(b"a", b"", lost=True), Message(b"b", b"", lost=True)}
            assert await asyncio.wait_for(anext(pattern), 60) == Message(b"p*", b"", lost=True)
            victim.ask("PUBLISH", "a", "again")
            victim.ask("PUBLISH", "p1", "again")
            assert (await anext(plain)).data == (await anext(pattern)).data == b"again"


async def test_a_freeze_is_reported_without_calls(victim: Valkey) -> None:
    """A freeze is detected on the connection for subscriptions, too, and the gap is reported."""
    async with node_client(victim.url) as client, client.subscribe("news") as messages:
        victim.pause()
        await eventually(lambda: client.hub._link is not None and not client.hub._link.up)
        victim.resume()
        assert (await asyncio.wait_for(anext(messages), 3)).lost


async def test_subscribing_while_the_server_is_down(victim: Valkey) -> None:
    """Subscribing while the server is down fails at once, and leaves no trace."""
    async with node_client(victim.url) as client, client.subscribe("known") as messages:
        victim.kill()
        await eventually(lambda: client.hub._link is not None and not client.hub._link.up)
        with pytest.raises(ConnectionFailed):
            async with client.subscribe("new"):
                pass
        await asyncio.to_thread(victim.restart)
        assert (await asyncio.wait_for(anext(messages), 60)).lost
        assert victim.ask("PUBSUB", "CHANNELS") == ["known"]


async def test_unsubscribing_while_the_server_is_down(victim: Valkey) -> None:
    """A channel left while the server is down is not subscribed to again."""
    async with node_client(victim.url) as client, client.subscribe("known") as messages:
        async with client.subscribe("left"):
            victim.kill()
            await eventually(lambda: client.hub._link is not None and not client.hub._link.up)
        await asyncio.to_thread(victim.restart)
        assert (await asyncio.wait_for(anext(messages), 60)).lost
        assert victim.ask("PUBSUB", "CHANNELS") == ["known"]


async def test_local_copies_are_invalidated_by_a_restart(victim: Valkey) -> None:
    """Listeners are notified that any key may have changed, and of changes after the restart."""
    received: list[Invalidations] = []
    async with node_client(victim.url) as client:
        await client.track(received.append)
        await client.call("GET", "x")
        victim.kill()
        await eventually(lambda: received == [None])
        await asyncio.to_thread(victim.restart)
        await eventually(lambda: client.up)
        await client.call("GET", "x")
        victim.ask("SET", "x", "1")
        await eventually(lambda: received == [None, [b"x"]])
