"""The keys that scripture verifies tokens with, from a place that does not always answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from ephemera.patterns.tokens import Claims
from ephemera_services.scripture import Settings
from ephemera_services.scripture.key_set import KeySet
from tests.services.scripture_readers import RING, TOKENS


class _Publisher:
    """A key set over HTTP that does not answer its first client."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._answering: list[asyncio.Task[None]] = []

    def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client has connected."""
        self._answering.append(asyncio.create_task(self._answer(reader, writer)))

    async def ended(self) -> None:
        """Wait until all who asked have left."""
        await asyncio.gather(*self._answering)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if self.asked.is_set():
            body = msgspec.json.encode(RING.jwks())
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
        self.asked.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def _published() -> AsyncIterator[tuple[_Publisher, KeySet]]:
    publisher = _Publisher()
    server = await asyncio.start_server(publisher.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = Settings(jwks=f"http://127.0.0.1:{port}/", issuer=TOKENS.issuer, audience=TOKENS.audience)
    async with server:
        async with KeySet.open(settings) as keys:
            yield publisher, keys
        await publisher.ended()


async def test_a_cancelled_key_fetch_does_not_block_the_next() -> None:
    """The next request fetches at once: a cancelled fetch does not count as an attempt."""
    now = time.time()
    said = Claims(sub="u1", jti="t1", kind="access", iat=now, exp=now + 900)
    async with asyncio.timeout(60), _published() as (publisher, keys):
        first = asyncio.create_task(keys.verify(TOKENS.sign(said)))
        await publisher.asked.wait()
        first.cancel()
        await asyncio.wait((first,))
        assert await keys.verify(TOKENS.sign(said)) == said
