"""TLS before a PostgreSQL that was built without it: takes a client's request for it, and passes all on."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs, urlsplit

_TLS_WANTED, _GSS_WANTED = 80877103, 80877104  # as the protocol has them
_REQUEST = 8  # bytes
_LOST = (OSError, EOFError, asyncio.IncompleteReadError)


@contextmanager
def with_tls(url: str, context: ssl.SSLContext) -> Iterator[int]:
    """The port on which a server is reached by TLS alone; plain connections are refused."""
    path = f"{parse_qs(urlsplit(url).query)['host'][0]}/.s.PGSQL.5432"

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(*_LOST):
            if await _wants_tls(reader, writer):
                await writer.start_tls(context)
                server, to_server = await asyncio.open_unix_connection(path)
                await asyncio.gather(_pass_on(reader, to_server), _pass_on(server, writer))
        writer.close()

    loop = asyncio.new_event_loop()
    front = loop.run_until_complete(asyncio.start_server(converse, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield front.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(_ended(front))
        loop.close()


async def _ended(front: asyncio.Server) -> None:
    front.close()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


async def _wants_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    wanted = int.from_bytes((await reader.readexactly(_REQUEST))[4:])
    if wanted == _GSS_WANTED:
        writer.write(b"N")
        wanted = int.from_bytes((await reader.readexactly(_REQUEST))[4:])
    if wanted != _TLS_WANTED:
        return False
    writer.write(b"S")
    await writer.drain()
    return True


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(*_LOST):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
