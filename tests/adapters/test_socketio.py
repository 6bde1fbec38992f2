"""The client manager of python-socketio: what one process emits reaches the clients of others."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import socketio
from socketio.packet import BINARY_EVENT, Packet

from ephemera import embedded
from ephemera.adapters.socketio import AsyncRedisManager
from ephemera.errors import ConnectionFailed
from ephemera.wire import open_client

PATIENCE = 30  # seconds


class Process:
    """A server process with one client, whose packets are collected."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.server = socketio.AsyncServer(client_manager=manager)
        self.client = ""
        self.packets: asyncio.Queue[Any] = asyncio.Queue()
        self.server._send_eio_packet = self._collect

    async def _collect(self, _eio_sid: str, packet: Any) -> None:
        self.packets.put_nowait(packet.data)

    async def next_event(self) -> Any:
        """The next event that its client gets."""
        async with asyncio.timeout(PATIENCE):
            packet = Packet(encoded_packet=await self.packets.get())
            while packet.packet_type == BINARY_EVENT and not packet.add_attachment(await self.packets.get()):
                pass
        return packet.data


@asynccontextmanager
async def running(manager: Any, url: str) -> AsyncIterator[Process]:
    """A process that has subscribed."""
    process = Process(manager)
    process.client = await manager.connect("eio", "/")
    manager.initialize()
    async with open_client(url) as client, asyncio.timeout(PATIENCE):
        while not await subscribers(client, manager.channel):
            await asyncio.sleep(0.01)
    yield process
    manager.thread.cancel()
    await asyncio.gather(manager.thread, return_exceptions=True)


async def subscribers(client: Any, channel: str) -> int:
    """How many connections have subscribed to a channel, on all nodes."""
    counts = [await node.call("PUBSUB", "NUMSUB", channel) for node in client.nodes()]
    return sum(int(next(iter(each.values())) if isinstance(each, dict) else each[1]) for each in counts)


@pytest.fixture(params=["server", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """A server and a cluster."""
    found: str = request.getfixturevalue(request.param).url
    return found


async def test_an_event_reaches_the_clients_of_all_processes(url: str, key: str) -> None:
    """Each once, even binary ones, and those of a process that only emits."""
    async with running(AsyncRedisManager(url, key), url) as one:
        async with running(AsyncRedisManager(url, f"{key}-other"), url) as other_channel:
            outside = AsyncRedisManager(url, key, write_only=True)
            await outside.emit("news", {"text": "ü"})
            assert await one.next_event() == ["news", {"text": "ü"}]
            await one.manager.emit("own", b"\x00\xff")
            assert await one.next_event() == ["own", b"\x00\xff"]
            await outside.emit("last", [1, 2])
            assert await one.next_event() == ["last", [1, 2]]
            assert one.packets.empty()
            assert other_channel.packets.empty()


async def test_a_room_is_closed_and_left_from_another_process(url: str, key: str) -> None:
    """enter_room, leave_room and close_room work on clients that are connected elsewhere."""
    async with running(AsyncRedisManager(url, key), url) as one:
        outside = AsyncRedisManager(url, key, write_only=True)
        outside.server = one.server
        await outside.enter_room(one.client, "/", "room")
        await outside.emit("hello", 1, room="room")
        assert await one.next_event() == ["hello", 1]
        await outside.close_room("room")
        await outside.emit("nobody", 2, room="room")
        await outside.emit("all", 3)
        assert await one.next_event() == ["all", 3]


@pytest.mark.standalone("python-socketio's own manager has no client for a cluster")
@pytest.mark.parametrize("ours_emits", [True, False])
async def test_processes_with_the_stock_manager_are_reached(server: Any, key: str, ours_emits: bool) -> None:
    """During a deployment both managers share a channel, in both directions."""
    ours, stock = AsyncRedisManager(server.url, key), socketio.AsyncRedisManager(server.url, channel=key)
    emitter, receiver = (ours, stock) if ours_emits else (stock, ours)
    async with running(receiver, server.url) as process:
        await emitter.emit("hello", {"a": 1})
        assert await process.next_event() == ["hello", {"a": 1}]
    await stock.redis.aclose()
    if receiver is stock:
        await stock.pubsub.aclose()


async def test_it_listens_again_after_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    """An event that cannot be published reaches the process's own clients, and the log."""
    with embedded.valkey() as valkey:
        manager = AsyncRedisManager(valkey.url, logger=logging.getLogger("test"))
        async with running(manager, valkey.url) as one:
            valkey.kill()
            async with open_client(valkey.url, required=False) as client:
                with pytest.raises(ConnectionFailed):
                    await client.call("PING")
            await manager.emit("own", 1)
            assert await one.next_event() == ["own", 1]
            assert "other processes do not get a emit" in caplog.text
            valkey.restart()
            outside = AsyncRedisManager(valkey.url, write_only=True, logger=logging.getLogger("test"))
            async with asyncio.timeout(PATIENCE):
                while one.packets.empty():
                    await outside.emit("after", 2)
                    await asyncio.sleep(0.05)
            assert await one.next_event() == ["after", 2]


async def test_what_is_no_message_is_ignored(server: Any, key: str) -> None:
    """Another program may publish anything on the channel; the next event still arrives."""
    async with running(AsyncRedisManager(server.url, key), server.url) as one:
        for text in (
            "",
            "[]",
            "7",
            "{}",
            json.dumps({"method": "emit"}),
            "\ud800".encode("utf-8", "surrogatepass"),
        ):
            async with open_client(server.url) as client:
                await client.call("PUBLISH", key, text)
        await AsyncRedisManager(server.url, key, write_only=True).emit("next", 1)
        assert await one.next_event() == ["next", 1]


def test_a_wrong_url_is_refused_at_once() -> None:
    """Not when the first client connects."""
    with pytest.raises(ValueError, match="http"):
        AsyncRedisManager("http://localhost")
