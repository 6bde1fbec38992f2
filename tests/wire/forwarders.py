"""Forwarders between a client and a real server: slow, frozen, cut, or with TLS towards the client."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ephemera.embedded import Valkey


class Forwarder:
    """Passes bytes on, `piece` at a time towards the client; while `gate` is closed it passes none."""

    def __init__(self, server: Valkey, piece: int = 65536) -> None:
        self._port = server.port
        self._piece = piece
        self._flows: set[asyncio.Task[None]] = set()
        self.address = ""
        """Its password, host and port, for a URL."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.accepted = 0
        self.pause_between_pieces = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one client to the server, until either ends."""
        self.accepted += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        flows = [self._flow(reader, back, 65536), self._flow(there, writer, self._piece)]
        tasks = [asyncio.create_task(flow) for flow in flows]
        self._flows.update(tasks)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._flows.difference_update(tasks)
            back.transport.abort()
            writer.transport.abort()

    def cut(self) -> None:
        """End all connections, on both sides."""
        for flow in self._flows:
            flow.cancel()

    async def _flow(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, piece: int) -> None:
        while data := await source.read(65536):
            for start in range(0, len(data), piece):
                await self.gate.wait()
                sink.write(data[start : start + piece])
                await sink.drain()
                if self.pause_between_pieces or piece == 1:
                    await asyncio.sleep(self.pause_between_pieces)


@asynccontextmanager
async def forwarding(
    server: Valkey, *, piece: int = 65536, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Forwarder]:
    """A forwarder to the server on a port of its own."""
    forwarder = Forwarder(server, piece)
    options: dict[str, Any] = {"ssl": tls}
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(forwarder.serve(reader, writer))
        serving.add(task)
        await asyncio.wait((task,))
        serving.discard(task)

    # What a forwarder has not read yet must wait at the sender, as on a slow line.
    entrance = socket.create_server(("127.0.0.1", 0))
    entrance.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    listener = await asyncio.start_server(serve, sock=entrance, **options)
    host, port = listener.sockets[0].getsockname()
    forwarder.address = f":{server.password}@{host}:{port}"
    try:
        yield forwarder
    finally:
        listener.close()
        forwarder.cut()
        await asyncio.gather(*serving, return_exceptions=True)
        await listener.wait_closed()
