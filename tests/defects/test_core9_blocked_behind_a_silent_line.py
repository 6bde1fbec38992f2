"""CORE9: `BLPOP q 0` behind a silent line never ended, although the shared link knew that it was down."""

from __future__ import annotations

import asyncio

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import OutcomeUnknown
from tests.wire.clients import node_client
from tests.wire.conditions import answered, eventually
from tests.wire.forwarders import forwarding

_TIMEOUT, _CONNECT_TIMEOUT, _PING_EVERY = 0.5, 2.0, 1.0  # seconds
_PROMISED = _PING_EVERY + _TIMEOUT + _CONNECT_TIMEOUT
_BOUND = 3 * _PROMISED + 2  # on a busy machine


def _is_blocked(server: Valkey) -> bool:
    """Whether the server has a client that waits in BLPOP."""
    clients = str(server.ask("CLIENT", "LIST"))
    return any("flags=b" in each and "cmd=blpop" in each for each in clients.splitlines())


async def test_core9_a_blocking_command_ends_when_the_server_cannot_be_reached(
    server: Valkey, key: str
) -> None:
    """When the line falls silent the waiting BLPOP fails within the timeouts, and works again afterwards."""
    async with (
        forwarding(server) as line,
        node_client(
            f"redis://{line.address}?timeout={_TIMEOUT}&connect_timeout={_CONNECT_TIMEOUT}"
        ) as client,
    ):
        waiting = asyncio.ensure_future(client.call("BLPOP", key, 0))
        # On the server, and not in the line: there it would be passed on later, and take the item.
        await eventually(lambda: _is_blocked(server))
        line.gate.clear()
        with pytest.raises(OutcomeUnknown, match="cannot be reached"):
            # one idle second until the next PING, its timeout, and one attempt to connect
            await asyncio.wait_for(waiting, _BOUND)
        await eventually(lambda: not _is_blocked(server), within=2)
        line.gate.set()
        await answered(lambda: client.call("PING"))
        await client.call("RPUSH", key, "item")
        assert await client.call("BLPOP", key, 1) == [key.encode(), b"item"]


async def test_core9_a_lost_link_alone_does_not_end_it(server: Valkey, key: str) -> None:
    """A link that reconnects at once leaves a waiting BLPOP alone."""
    async with node_client(server.url) as client:
        waiting = asyncio.ensure_future(client.call("BLPOP", key, 0))
        await eventually(lambda: client._dedicated._busy)
        client.link.drop("by a test")
        await eventually(lambda: client.connection_count == 2)
        await client.call("RPUSH", key, "item")
        assert await waiting == [key.encode(), b"item"]
