"""Reads that are lost: failed within one timeout by a frozen server, and repeated once, not twice."""

from __future__ import annotations

import time

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import Unavailable
from tests.wire.clients import node_client
from tests.wire.forwarders import forwarding
from tests.wire.scripted_server import Peer, scripted_server


async def test_a_pending_read_on_a_frozen_server_fails_within_one_timeout(server: Valkey) -> None:
    """It is not kept for the next connection, which a frozen server would not open, either."""
    async with (
        forwarding(server) as line,
        node_client(f"redis://{line.address}?timeout=0.2&connect_timeout=20") as client,
    ):
        line.gate.clear()
        began = time.monotonic()
        with pytest.raises(Unavailable, match="no answer for 200 ms"):
            await client.call("GET", "x")
        assert time.monotonic() - began < 5  # a read that waited for a connection would take 20 s
        line.gate.set()


async def test_a_read_lost_twice_is_unavailable() -> None:
    """A read is sent once more on the next connection, and fails when that is lost, too."""
    received: list[bytes] = []

    async def conversation(peer: Peer) -> None:
        await peer.handshake()
        while (command := await peer.command())[0] != b"GET":
            await peer.send(b"+OK\r\n")
        received.append(command[1])

    async with scripted_server(conversation) as address, node_client(f"redis://{address}") as client:
        with pytest.raises(Unavailable):
            await client.call("GET", "x")
        assert received == [b"x", b"x"]
