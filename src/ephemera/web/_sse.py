"""Progress as server-sent events (SSE), in pure ASGI; `progress` has the same for FastAPI routes.

    async def app(scope, receive, send):
        listener = store[PROGRESS].listen(job_id=..., after=last_event_id(scope), snapshot=load_job)
        await send_events(listener, receive, send)

An event comes as a message: its id, and its JSON as data. Where something may be missing comes an event named
`snapshot`: `{"recovered": false, "ended": ..., "state": ...}`. The last one is named `end`, after which the
client should close; a browser that comes back all the same, with the id of the end, gets 204, which tells it
to stay away. A comment now and then keeps proxies and the connection awake. `retry` tells browsers to come
back after one to three seconds, not all in the same moment.
A client that leaves is noticed at once, and its listener released; one that reads slowly is waited for, and
meanwhile nothing is kept for it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from ephemera.patterns.progress import ENDED, Listener, Missed, Update
from ephemera.web._asgi import Header, Receive, Scope, Send

HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx and its like would collect events otherwise
)
_HEARTBEAT = b":\n\n"
_END = b"event: end\nid: %s\ndata: {}\n\n" % ENDED.encode()
_COMES_BACK = (1000, 3000)  # milliseconds


def last_event_id(scope: Scope) -> str | None:
    """The last event that a client got: by its header, or by `?last_event_id=` when it sends none.

    A browser that reconnects sends the header, and with it an address that still has the first id.
    """
    for name, value in scope.get("headers", ()):
        if name == b"last-event-id" and value:
            return str(value.decode("latin-1"))
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    return next(iter(query.get("last_event_id", ())), None)


async def send_events(
    listener: Listener[Any], receive: Receive, send: Send, headers: Iterable[Header] = HEADERS
) -> None:
    """Send what a listener gets until its end, or until the client leaves."""
    with suppress(OSError):  # how a server says that the client has left
        async with listener:
            updates = await listener.catch_up()
            if listener.ended and not updates:
                await send({"type": "http.response.start", "status": 204, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
            leaving = asyncio.get_running_loop().create_task(_left(receive, listener))
            try:
                await _send_all(listener, updates, send)
            finally:
                leaving.cancel()


async def _send_all(listener: Listener[Any], updates: list[Update[Any]], send: Send) -> None:
    hello = b"retry: %d\n\n" % random.randint(*_COMES_BACK)
    await send(_body(hello + _written(updates)))
    while not (listener.ended or listener.closed):
        updates = await listener.next_batch()
        await send(_body(_written(updates) or _HEARTBEAT))
    await send({"type": "http.response.body", "body": _END if listener.ended else b""})


async def _left(receive: Receive, listener: Listener[Any]) -> None:
    """Release the listener as soon as its client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    listener.close()


def _body(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


def _written(updates: list[Update[Any]]) -> bytes:
    return b"".join([_event(update) for update in updates])


def _event(update: Update[Any]) -> bytes:
    """One event, written once for all who get it; JSON has no line breaks, so its data is one line."""
    if isinstance(update, Missed):
        return b"event: snapshot\nid: %s\ndata: %s\n\n" % (update.id.encode(), update.data)
    text = update.encoded.get("sse")
    if text is None:
        text = update.encoded["sse"] = b"id: %s\ndata: %s\n\n" % (update.id.encode(), update.data)
    return text
