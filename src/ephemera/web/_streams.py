"""Progress and messages to users as long-lived responses, in pure ASGI.

    async def app(scope, receive, send):
        listener = store[PROGRESS].listen(job_id=..., after=last_event_id(scope), snapshot=load_job)
        await send_progress_sse(listener, receive, send)

*Progress by server-sent events (SSE).* An event is a message with its id and its JSON as data. Where events
may be missing there is an event named `snapshot`: `{"recovered": false, "ended": ..., "state": ...}`; a new
client of an empty stream begins with one, too, that says `recovered: true`. The last one is named `end`,
after which the client should close; a browser that reconnects with the id of the end gets 204, which keeps it
from reconnecting. A comment now and then keeps proxies and the connection awake. `retry` makes browsers
reconnect after one to three seconds, not all at once.

*Progress by WebSocket.* The client gives its position by `?last_event_id=`. It gets JSON texts: `{"id": ...,
"event": {...}}` for each event, and `{"id": ..., "recovered": false, "ended": ..., "state": {...}}` where
events may be missing; it gives the id when it reconnects. After the last one the connection is closed with
1000 and the reason `ended`; with 1012 when the server restarts.

*Messages to users by WebSocket.* The client gets JSON texts: `{"message": {...}}` for each message, and
`{"missed": true}` where some may be lost, after which it should reload what it shows.

| close code | reason | the client |
|---|---|---|
| 1012 | restarting | reconnects soon |
| 1013 | too slow | left `backlog` messages unread; reconnects, and reloads what it shows |

What a client sends over a WebSocket is ignored; the server's own pings find dead connections. A client that
disconnects is noticed at once, and its listener closed; a client of progress that reads slowly is waited for,
and nothing is buffered for it.

*Stopping.* A process that is asked to stop calls `end_streams`: every stream ends at once with a clean close,
and clients resume at another process, instead of being cut when the server's patience ends.

*Reauthorization.* A connection may stay open for long after its user was signed out or blocked, so
`while_allowed` repeats the check behind `allowed=` and closes the connection when the answer is no.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from ephemera.errors import ConnectionFailed, SlowConsumer
from ephemera.keyspace import encode_json
from ephemera.patterns.fanout import MISSED, FanoutConnection
from ephemera.patterns.progress import ENDED, Listener, Missed, Update
from ephemera.web._asgi import Header, Receive, Scope, Send

Allowed: TypeAlias = "Callable[[], Awaitable[bool]]"
"""Whether a connection may stay open, such as `RequestSession.is_valid`."""

SSE_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx and others would buffer events otherwise
)
REAUTHORIZE_EVERY = 10.0  # seconds for which a connection may outlive its permission

_HEARTBEAT = b":\n\n"
_SSE_END = b"event: end\nid: %s\ndata: {}\n\n" % ENDED.encode()
_RECONNECT_AFTER = (1000, 3000)  # milliseconds
_ENDED = {"type": "websocket.close", "code": 1000, "reason": ENDED}
_RESTARTING = {"type": "websocket.close", "code": 1012, "reason": "restarting"}
_TOO_SLOW = {"type": "websocket.close", "code": 1013, "reason": "too slow"}
_MISSED = '{"missed":true}'
_CLOSE_TIMEOUT = 1.0  # seconds that a client has to receive the close code

_open_streams: dict[object, Callable[[], None]] = {}

log = logging.getLogger("ephemera.web")


def last_event_id(scope: Scope) -> str | None:
    """The last event that a client received: by its header, or by `?last_event_id=` without one.

    A browser that reconnects sends the header, and with it a URL that still has the first id.
    """
    for name, value in scope.get("headers", ()):
        if name == b"last-event-id" and value:
            return str(value.decode("latin-1"))
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    return next(iter(query.get("last_event_id", ())), None)


async def send_progress_sse(
    listener: Listener[Any], receive: Receive, send: Send, headers: Iterable[Header] = SSE_HEADERS
) -> None:
    """Send the updates of a listener as server-sent events, until the end or until the client disconnects.

    Args:
        listener: The updates: what `store[PROGRESS].listen(...)` returns.
        receive: The application's `receive`.
        send: The application's `send`.
        headers: The response's headers; by default those of a stream that no proxy buffers or stores.

    """
    with suppress(OSError):  # how a server reports that the client has disconnected
        async with listener:
            updates = await listener.catch_up()
            if listener.ended and not updates:
                await send({"type": "http.response.start", "status": 204, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
            async with _closed_on_disconnect(listener, receive, "http.disconnect"):
                await _send_sse(listener, updates, send)


async def send_progress_websocket(listener: Listener[Any], receive: Receive, send: Send) -> None:
    """Accept the WebSocket and send the updates of a listener, until the end or a disconnection."""
    with suppress(OSError):  # how a server reports that the client has disconnected
        async with listener:
            await receive()  # websocket.connect
            await send({"type": "websocket.accept"})
            updates = await listener.catch_up()
            async with _closed_on_disconnect(listener, receive, "websocket.disconnect"):
                await _send_texts(listener, updates, send)


async def send_fanout_websocket(connection: FanoutConnection[Any], receive: Receive, send: Send) -> None:
    """Accept the WebSocket and send the messages of its user, until it disconnects or is too slow."""
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    async with connection:
        loop = asyncio.get_running_loop()
        sending = loop.create_task(_send_messages(connection, send))
        disconnecting = loop.create_task(_wait_for(receive, "websocket.disconnect"))
        try:
            await asyncio.wait(
                (sending, disconnecting, connection.dropped), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            disconnected = disconnecting.done()
            sending.cancel()
            disconnecting.cancel()
            await asyncio.gather(sending, disconnecting, return_exceptions=True)
    if not disconnected:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await send(_TOO_SLOW if connection.dropped.done() else _RESTARTING)


@asynccontextmanager
async def while_allowed(allowed: Allowed | None, close: Callable[[], None]) -> AsyncIterator[None]:
    """Repeat the check during the block, and call `close` when it fails, or when all streams are ended."""
    checking = allowed and asyncio.get_running_loop().create_task(_reauthorize(allowed, close))
    stream = object()
    _open_streams[stream] = close
    try:
        yield
    finally:
        del _open_streams[stream]
        if checking is not None:
            checking.cancel()


def end_streams() -> None:
    """End every stream of this process with a clean close; call it when the process is asked to stop.

    Clients of progress resume at another process with the last id they got, others reconnect.
    """
    for close in list(_open_streams.values()):
        close()


async def _reauthorize(allowed: Allowed, close: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(REAUTHORIZE_EVERY)
        try:
            if await allowed():
                continue
        except ConnectionFailed:
            continue  # the answer is unknown: the connection stays open, and is checked again
        except Exception:
            log.exception("checking whether a connection may stay open failed; closing it")
        close()
        return


async def _send_sse(listener: Listener[Any], updates: list[Update[Any]], send: Send) -> None:
    retry = b"retry: %d\n\n" % random.randint(*_RECONNECT_AFTER)
    await send(_body(retry + _sse_events(updates)))
    while not (listener.ended or listener.closed):
        updates = await listener.next_batch()
        await send(_body(_sse_events(updates) or _HEARTBEAT))
    await send({"type": "http.response.body", "body": _SSE_END if listener.ended else b""})


async def _send_texts(listener: Listener[Any], updates: list[Update[Any]], send: Send) -> None:
    while True:
        for update in updates:
            await send({"type": "websocket.send", "text": _text(update)})
        if listener.ended or listener.closed:
            break
        updates = await listener.next_batch()
    await send(_ENDED if listener.ended else _RESTARTING)


async def _send_messages(connection: FanoutConnection[Any], send: Send) -> None:
    with suppress(SlowConsumer, OSError):
        async for message in connection:
            text = _MISSED if message is MISSED else f'{{"message":{encode_json(message).decode()}}}'
            await send({"type": "websocket.send", "text": text})


@asynccontextmanager
async def _closed_on_disconnect(
    listener: Listener[Any], receive: Receive, disconnect: str
) -> AsyncIterator[None]:
    """Close a listener as soon as its client disconnects."""

    async def wait() -> None:
        await _wait_for(receive, disconnect)
        listener.close()

    waiting = asyncio.get_running_loop().create_task(wait())
    try:
        yield
    finally:
        waiting.cancel()


async def _wait_for(receive: Receive, message_type: str) -> None:
    while (await receive())["type"] != message_type:
        pass


def _body(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


def _sse_events(updates: list[Update[Any]]) -> bytes:
    return b"".join([_sse_event(update) for update in updates])


def _sse_event(update: Update[Any]) -> bytes:
    """Encode one event, once for all its receivers; JSON has no line breaks, so its data is one line."""
    if isinstance(update, Missed):
        return b"event: snapshot\nid: %s\ndata: %s\n\n" % (update.id.encode(), update.data)
    text = update.encoded.get("sse")
    if text is None:
        text = update.encoded["sse"] = b"id: %s\ndata: %s\n\n" % (update.id.encode(), update.data)
    return text


def _text(update: Update[Any]) -> str:
    if isinstance(update, Missed):
        return f'{{"id":"{update.id}",{update.data[1:].decode()}'
    text = update.encoded.get("json")
    if text is None:
        text = update.encoded["json"] = b'{"id":"%s","event":%s}' % (update.id.encode(), update.data)
    return text.decode()
