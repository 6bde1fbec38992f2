"""Progress over a WebSocket, in pure ASGI; `progress` has the same for FastAPI routes.

The client says where it is by `?last_event_id=`. It gets JSON texts: `{"id": ..., "event": {...}}` for each
event, and `{"id": ..., "recovered": false, "ended": ..., "state": {...}}` where something may be missing; the
id is what it gives when it comes back. After the last one the connection is closed with 1000 and the reason
`ended`; with 1012 when the server restarts. What the client sends is ignored; the server's own pings keep the
connection awake.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from ephemera.patterns.progress import ENDED, Listener, Missed, Update
from ephemera.web._asgi import Receive, Send

_OVER = {"type": "websocket.close", "code": 1000, "reason": ENDED}
_RESTARTING = {"type": "websocket.close", "code": 1012, "reason": "restarting"}


async def send_messages(listener: Listener[Any], receive: Receive, send: Send) -> None:
    """Accept the connection and send what a listener gets until its end, or until the client leaves."""
    with suppress(OSError):  # how a server says that the client has left
        async with listener:
            await receive()  # websocket.connect
            await send({"type": "websocket.accept"})
            updates = await listener.catch_up()
            leaving = asyncio.get_running_loop().create_task(_left(receive, listener))
            try:
                await _send_all(listener, updates, send)
            finally:
                leaving.cancel()


async def _send_all(listener: Listener[Any], updates: list[Update[Any]], send: Send) -> None:
    while True:
        for update in updates:
            await send({"type": "websocket.send", "text": _message(update)})
        if listener.ended or listener.closed:
            break
        updates = await listener.next_batch()
    await send(_OVER if listener.ended else _RESTARTING)


async def _left(receive: Receive, listener: Listener[Any]) -> None:
    """Release the listener as soon as its client is gone."""
    while (await receive())["type"] != "websocket.disconnect":
        pass
    listener.close()


def _message(update: Update[Any]) -> str:
    if isinstance(update, Missed):
        return f'{{"id":"{update.id}",{update.data[1:].decode()}'
    text = update.encoded.get("json")
    if text is None:
        text = update.encoded["json"] = b'{"id":"%s","event":%s}' % (update.id.encode(), update.data)
    return text.decode()
