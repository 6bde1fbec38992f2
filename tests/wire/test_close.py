"""After closing nothing is left: no task, no socket, no warning."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from ephemera.embedded import Cluster, Sentinel, Valkey
from ephemera.errors import OutcomeUnknown
from tests.wire import leak_check_program
from tests.wire.clients import node_client
from tests.wire.conditions import eventually
from tests.wire.scripted_server import Peer, scripted_server


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_nothing_is_left(server: Valkey, cluster: Cluster, sentinel: Sentinel, loop: str) -> None:
    """A program that used the whole wire ends silently in development mode, with warnings as errors."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        unused = f"127.0.0.1:{closed.getsockname()[1]}"
        absent = f"redis://{unused} redis+cluster://{unused} redis+sentinel://{unused}/main"
        urls = f"{server.url} {cluster.url} {cluster.url}?read_from=replicas {sentinel.url}"
        command = [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "error",
            leak_check_program.__file__,
            loop,
            urls,
            absent,
        ]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    noise = [line for line in ended.stderr.splitlines() if not line.startswith("starting without")]
    assert (noise, ended.stdout, ended.returncode) == ([], "", 0)


async def test_a_close_that_is_cancelled_disconnects_all_the_same() -> None:
    """Who stops waiting for the replies of a frozen server leaves no connection to it."""
    disconnected = asyncio.Event()

    async def frozen(peer: Peer) -> None:
        await peer.handshake()
        await peer.wait_for_disconnect()
        disconnected.set()

    async with scripted_server(frozen) as address, node_client(f"redis://{address}?timeout=60") as client:
        pending = client.call("INCR", "x")
        closing = asyncio.create_task(client.aclose())
        await eventually(lambda: not client.up)
        closing.cancel()
        await asyncio.wait_for(disconnected.wait(), 20)
        with pytest.raises(OutcomeUnknown):
            await pending
