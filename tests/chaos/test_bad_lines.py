"""A connection that is cut, frozen and slow at random: every call gets an answer, and the right one."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed
from ephemera.wire import NodeClient, Subscription
from tests.wire.clients import node_client
from tests.wire.conditions import answered
from tests.wire.forwarders import Forwarder, forwarding

_SECONDS = 1.5


async def _disturb(forwarder: Forwarder, until: float) -> int:
    """Cut and freeze the connection at random."""
    loop = asyncio.get_running_loop()
    cuts = 0
    while loop.time() < until:
        await asyncio.sleep(random.uniform(0, 0.05))
        if random.random() < 0.2:
            forwarder.gate.clear()
            await asyncio.sleep(random.uniform(0, 0.1))
            forwarder.gate.set()
        else:
            forwarder.cut()
            cuts += 1
    return cuts


async def _call(client: NodeClient, name: int, until: float) -> tuple[int, int]:
    """Call with unique values, sometimes with a short timeout; returns how many succeeded and failed.

    On a busy machine no moment may be without a fault: a caller without a reply continues until it has one.
    """
    loop = asyncio.get_running_loop()
    served = failed = 0
    while loop.time() < until or not served:
        value = f"{name} {served} {failed}"
        patience = random.choice([None, None, 0.0, 0.0005])
        try:
            async with asyncio.timeout(patience):
                assert await client.call("ECHO", value) == value.encode()
            served += 1
        except ConnectionFailed:
            failed += 1
            await asyncio.sleep(0.001)
        except TimeoutError:
            continue
    return served, failed


@pytest.mark.on_both_loops
async def test_every_call_gets_its_own_reply_or_an_error(server: Valkey) -> None:
    """On a failing connection, every call ends with its own reply or with a connection error."""
    async with forwarding(server) as forwarder:
        async with node_client(f"redis://{forwarder.address}?timeout=0.08&max_in_flight=20") as client:
            until = asyncio.get_running_loop().time() + _SECONDS
            disturbing = asyncio.create_task(_disturb(forwarder, until))
            outcomes = await asyncio.gather(*(_call(client, name, until) for name in range(50)))
            cuts = await disturbing
            assert min(served for served, _ in outcomes) > 0
            assert cuts > 5
            await answered(lambda: client.call("PING"))
            assert not client.link._retries


@pytest.mark.on_both_loops
async def test_subscribers_notice_every_gap(server: Valkey) -> None:
    """On a failing connection, a subscriber gets all messages in order, or a mark where some are missing."""
    async with forwarding(server) as forwarder, node_client(server.url) as sender:
        async with node_client(f"redis://{forwarder.address}?timeout=0.08") as client:
            until = asyncio.get_running_loop().time() + _SECONDS
            async with client.subscribe("bad line") as messages:
                disturbing = asyncio.create_task(_disturb(forwarder, until))
                sent = asyncio.create_task(_publish(sender, until))
                await asyncio.gather(disturbing, sent)
                ending = asyncio.create_task(_publish_end(sender))
                assert await _gaps_in(messages) > 0
                ending.cancel()


async def _gaps_in(messages: Subscription) -> int:
    """Read to the end and return how many gaps were reported; every gap must be."""
    expected, gaps, reported = 0, 0, False
    async with asyncio.timeout(60):
        async for message in messages:
            if message.data == b"end":
                break
            gaps += message.lost
            reported = reported or message.lost
            if not message.lost:
                assert int(message.data) == expected or reported, "messages were lost silently"
                expected, reported = int(message.data) + 1, False
    return gaps


async def _publish(sender: NodeClient, until: float) -> None:
    loop = asyncio.get_running_loop()
    for number in itertools.count():
        if loop.time() > until:
            return
        await sender.call("PUBLISH", "bad line", number)
        await asyncio.sleep(0.002)


async def _publish_end(sender: NodeClient) -> None:
    while True:
        await sender.call("PUBLISH", "bad line", "end")
        await asyncio.sleep(0.01)
