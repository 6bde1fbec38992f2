"""Messages to users over WebSockets, in pure ASGI; `fanout` has the same for FastAPI routes.

The client gets JSON texts: `{"message": {...}}` for each message, and `{"missed": true}` where some may be
lost: it then reads what it shows anew. What it sends is ignored; the server's own pings find who is gone.

| close code | reason | the client |
|---|---|---|
| 1012 | restarting | comes back soon |
| 1013 | too slow | left `backlog` messages waiting; comes back, and reads what it shows anew |
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from ephemera.errors import SlowConsumer
from ephemera.patterns.fanout import MISSED, Connection
from ephemera.web._asgi import Receive, Send

TOO_SLOW = {"type": "websocket.close", "code": 1013, "reason": "too slow"}
RESTARTING = {"type": "websocket.close", "code": 1012, "reason": "restarting"}
_MISSED = '{"missed":true}'
_GOODBYE = 1.0  # seconds that a client has to take the close code


async def send_messages(connection: Connection[Any], receive: Receive, send: Send) -> None:
    """Accept the connection and send it what its user gets, until it leaves or is too slow."""
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    async with connection:
        loop = asyncio.get_running_loop()
        sending = loop.create_task(_send_all(connection, send))
        leaving = loop.create_task(_left(receive))
        try:
            await asyncio.wait((sending, leaving, connection.dropped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone = leaving.done()
            sending.cancel()
            leaving.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
    if not gone:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                await send(TOO_SLOW if connection.dropped.done() else RESTARTING)


async def _send_all(connection: Connection[Any], send: Send) -> None:
    with suppress(SlowConsumer, OSError):
        async for message in connection:
            text = _MISSED if message is MISSED else f'{{"message":{msgspec.json.encode(message).decode()}}}'
            await send({"type": "websocket.send", "text": text})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "websocket.disconnect":
        pass
