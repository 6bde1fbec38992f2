"""A client of server-sent events that reads, remembers its last id, and reconnects, as a browser does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple


class ServerSent(NamedTuple):
    """One event; comments have the name ':'."""

    name: str
    id: str
    data: bytes


class Opened:
    """A response that is being read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._buffer = b""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.retry: int | None = None

    async def start(self) -> None:
        """Read the head."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(head[0].split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)

    def __aiter__(self) -> Opened:
        return self

    async def __anext__(self) -> ServerSent:
        while b"\n\n" not in self._buffer:
            chunk = await self._chunk() if self.status == 200 else b""
            if not chunk:
                raise StopAsyncIteration
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\n\n")
        return self._parse(text) or await self.__anext__()

    def _parse(self, text: bytes) -> ServerSent | None:
        if text.startswith(b":"):
            return ServerSent(":", "", text)
        lines = dict(line.split(b": ", 1) for line in text.split(b"\n"))
        if b"retry" in lines:
            self.retry = int(lines[b"retry"])
            return None
        name = lines.get(b"event", b"message").decode()
        return ServerSent(name, lines.get(b"id", b"").decode(), lines[b"data"])

    async def _chunk(self) -> bytes:
        """The next part of a chunked body; nothing at its end, ConnectionError when it broke off."""
        try:
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            return (await self._reader.readexactly(size + 2))[:-2]
        except asyncio.IncompleteReadError as problem:
            raise ConnectionResetError from problem


@asynccontextmanager
async def opened(port: int, path: str, last_id: str | None = None) -> AsyncIterator[Opened]:
    """Request events, after an id if one is given."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        header = f"Last-Event-ID: {last_id}\r\n" if last_id is not None else ""
        writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n{header}\r\n".encode())
        response = Opened(reader, writer)
        await response.start()
        yield response
    finally:
        writer.transport.abort()
