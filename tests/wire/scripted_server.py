"""Servers that send exactly the bytes a test wants: for replies that no real server can be made to send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import hiredis

Conversation = Callable[["Peer"], Awaitable[None]]


class Peer:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._commands = hiredis.Reader()

    async def command(self) -> list[bytes]:
        """The next command of the client; `EOFError` when it has disconnected."""
        while (command := self._commands.gets()) is False:
            data = await self._reader.read(65536)
            if not data:
                raise EOFError
            self._commands.feed(data)
        words: list[bytes] = command
        return words

    async def send(self, data: bytes) -> None:
        """Send some bytes at once."""
        self._writer.write(data)
        await self._writer.drain()

    async def handshake(self, **reported: str) -> None:
        """Answer the client's handshake, HELLO to PING, as Redis 7 would."""
        facts = {"server": "redis", "version": "7.4.0", "mode": "standalone", "role": "master"} | reported
        while True:
            match (await self.command())[0]:
                case b"HELLO":
                    await self.send(b"%%%d\r\n" % len(facts))
                    for name, value in facts.items():
                        await self.send(f"+{name}\r\n+{value}\r\n".encode())
                case b"PING":
                    return await self.send(b"+PONG\r\n")
                case _:
                    await self.send(b"+OK\r\n")

    async def send_slot_map(self) -> None:
        """Answer CLUSTER SLOTS: this server has all of them."""
        port = self._writer.get_extra_info("sockname")[1]
        await self.send(b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n_\r\n:%d\r\n" % port)

    async def wait_for_disconnect(self) -> None:
        """Send nothing more, until the client disconnects."""
        while await self._reader.read(65536):
            pass


@asynccontextmanager
async def scripted_server(conversation: Conversation, **options: Any) -> AsyncIterator[str]:
    """A server that has this conversation with every client; yields its host:port."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_converse(conversation, Peer(reader, writer)))
        serving.add(task)
        await asyncio.wait((task,))
        serving.discard(task)
        writer.transport.abort() if task.cancelled() else writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        while serving:
            for task in serving:
                task.cancel()
            await asyncio.sleep(0)
        await server.wait_closed()


async def _converse(conversation: Conversation, peer: Peer) -> None:
    with contextlib.suppress(EOFError, ConnectionError):  # the client has disconnected
        await conversation(peer)
