"""Messages to users over WebSockets, on a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from ephemera import Store, connect
from ephemera.embedded import Valkey
from tests.patterns.fanout_fixtures import NOTES, Note
from tests.patterns.progress_fixtures import JobDatabase
from tests.web.streaming_app import CATALOGUES, application, serving
from tests.wire.conditions import eventually


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """The store of the service."""
    async with connect(server.url, *CATALOGUES) as opened:
        yield opened


@pytest.fixture
async def port(store: Store) -> AsyncIterator[int]:
    """The service, on a real port."""
    async with serving(application(store, JobDatabase())) as number:
        yield number


async def test_a_push_from_another_process_arrives(server: Valkey, store: Store, port: int) -> None:
    """A message or a broadcast from another process arrives on the user's socket."""
    async with (
        connect(server.url, *CATALOGUES) as other,
        open_socket(f"ws://127.0.0.1:{port}/notifications?user=ws-u1") as socket,
    ):
        await eventually(lambda: store[NOTES].local_connections)
        async with asyncio.timeout(60):
            while not await other[NOTES].push(Note("hello"), user_id="ws-u1"):
                await asyncio.sleep(0.01)
        assert json.loads(await socket.recv()) == {"message": {"text": "hello"}}
        await other[NOTES].broadcast(Note("all"))
        assert json.loads(await socket.recv()) == {"message": {"text": "all"}}
    await eventually(lambda: not store[NOTES].local_connections)
    assert await store[NOTES].connections(user_id="ws-u1") == []


async def test_a_client_is_notified_of_missed_messages(server: Valkey, store: Store, port: int) -> None:
    """Where messages may be lost, the client gets `missed`."""
    async with open_socket(f"ws://127.0.0.1:{port}/notifications?user=ws-u2") as socket:
        await eventually(lambda: store[NOTES].local_connections)
        await eventually(lambda: store[NOTES]._registry._subscribed.is_set())
        server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        assert json.loads(await socket.recv()) == {"missed": True}


async def test_a_client_that_does_not_read_is_dropped(store: Store, port: int) -> None:
    """Unread messages are bounded: the connection is closed with 1013."""
    big = Note("x" * 1_000_000)
    uri = f"ws://127.0.0.1:{port}/notifications?user=ws-u3"
    async with open_socket(uri, max_size=None, max_queue=1, ping_interval=None, compression=None) as socket:
        await eventually(lambda: store[NOTES].local_connections)
        async with asyncio.timeout(60):
            while store[NOTES].local_connections:
                await store[NOTES].push(big, user_id="ws-u3")
                await asyncio.sleep(0.01)
            with pytest.raises(ConnectionClosed):
                await _read_on(socket)
    assert (socket.close_code, socket.close_reason) == (1013, "too slow")


async def _read_on(socket: ClientConnection) -> None:
    while True:
        await socket.recv()


async def test_a_closing_store_closes_sockets_with_1012(server: Valkey) -> None:
    """A server that restarts closes its sockets with 1012, so clients reconnect."""
    async with connect(server.url, *CATALOGUES) as store, serving(application(store, JobDatabase())) as port:
        async with open_socket(f"ws://127.0.0.1:{port}/notifications?user=ws-u4") as socket:
            await eventually(lambda: store[NOTES].local_connections)
            await store.aclose()
            await socket.wait_closed()
            assert socket.close_code == 1012
