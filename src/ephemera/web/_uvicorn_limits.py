"""Limits of connections for uvicorn, which has options for few of them. Needs uvicorn and httptools.

    uvicorn.run(app, **uvicorn_limits())

A request reaches an application when its head is complete, so no middleware can bound the head, or a client
that never finishes it. uvicorn with httptools keeps a head of any size and waits without end; the protocol
here is uvicorn's own, with limits:

- **Head**: size and number of headers (431), and the time until it is complete (408).
- **Body**: the time until it is complete, by a minimum rate after some seconds of grace (408). Time in which
  the application does not read does not count. Trailers and chunk extensions count as head.
- **Response**: a client that takes nothing of it for some time is disconnected.
- **Connections**: a new one replaces the one that has waited longest for a request, or else the one that has
  sent a body for longest, so that clients that only hold connections do not keep others out; if all have a
  complete request in progress, or one whose body is younger than a second, it gets 503.

Connections are checked once a second, not by a timer each: a request that arrives in one piece costs a few
attribute accesses.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ephemera.web._hardening_middleware import BODY_LIMIT

_log = logging.getLogger("ephemera.web")
_LOG_INTERVAL = 10.0  # seconds: a flood of clients must not become a flood of lines
_CHUNK_OVERHEAD = 8  # bytes of framing per byte of a body: one in a chunk of its own has 5
_BODY_TIME = 1.0  # seconds that every body has, however many clients connect
_PLENTY = 0.75  # the part of a process's descriptors that connections may use
_NEW, _IDLE, _HEAD, _BODY, _SERVING = range(5)


def uvicorn_limits(
    *,
    max_connections: int = 10_000,
    max_head: int = 32 * 1024,
    max_headers: int = 100,
    head_timeout: float = 10.0,
    body_grace: float = 10.0,
    min_body_rate: int = 4096,
    response_timeout: float = 60.0,
    max_message: int = BODY_LIMIT,
) -> dict[str, Any]:
    """Return options for `uvicorn.run` and `uvicorn.Config`.

    Args:
        max_connections: How many clients may be connected; at most three quarters of the file descriptors
            that the process may open.
        max_head: The size of a request's head, in bytes.
        max_headers: How many headers a request may have.
        head_timeout: How long its head may take, in seconds.
        body_grace: How long a body may be slower than `min_body_rate`, in seconds.
        min_body_rate: The slowest body after that, in bytes per second.
        response_timeout: How long a client may take nothing of a response, in seconds.
        max_message: The size of a message of a WebSocket, in bytes.

    """
    connections = _Connections(
        min(max_connections, _descriptors()),
        max_head,
        max_headers,
        head_timeout,
        body_grace,
        min_body_rate,
        response_timeout,
    )
    return {"http": partial(_LimitedProtocol, connections), "ws_max_size": max_message}


def _descriptors() -> int:
    try:
        import resource
    except ImportError:  # not on Windows
        return 2**31
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else int(soft * _PLENTY)


@dataclass
class _Connections:
    """The limits of a server, and its connections that have something to finish, the oldest first."""

    max_connections: int
    max_head: int
    max_headers: int
    head_timeout: float
    body_grace: float
    min_body_rate: int
    response_timeout: float
    waiting: dict[_LimitedProtocol, float] = field(default_factory=dict)
    """Without a complete head, or idle, since when."""
    sending: dict[_LimitedProtocol, float] = field(default_factory=dict)
    """With an incomplete body, since when."""
    stalled: dict[_LimitedProtocol, tuple[float, int]] = field(default_factory=dict)
    """With a response that is not taken: since when, and how much of it is left."""
    _sweep: asyncio.TimerHandle | None = None
    _refused: int = 0

    def count_refused(self, loop: asyncio.AbstractEventLoop) -> None:
        """Log that connections were refused: the first at once, those of the next seconds in one line."""
        self._refused += 1
        if self._refused == 1:
            _log.warning("answered with 503: all %d connections are in use", self.max_connections)
            loop.call_later(_LOG_INTERVAL, self._log_refused)

    def _log_refused(self) -> None:
        if self._refused > 1:
            _log.warning("answered with 503: %d more connections were refused", self._refused - 1)
        self._refused = 0

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check the connections from now on, until there are none."""
        if self._sweep is None:
            interval = min(1.0, self.head_timeout / 4)
            self._sweep = loop.call_later(interval, self._check, loop, interval)

    def discard(self, connection: _LimitedProtocol) -> None:
        """Forget a connection."""
        self.waiting.pop(connection, None)
        self.sending.pop(connection, None)
        self.stalled.pop(connection, None)

    def least_active(self, now: float) -> _LimitedProtocol | None:
        """The connection that a new one may replace."""
        for connection in self.waiting:
            return connection
        for connection, since in self.sending.items():
            if now - since < _BODY_TIME:
                break
            if not connection.is_held_back:
                return connection
        return None

    def _check(self, loop: asyncio.AbstractEventLoop, interval: float) -> None:
        self._sweep = None
        now = loop.time()
        for connection, since in [*self.waiting.items()]:
            if now - since <= self.head_timeout:
                break
            connection.check_waiting(now - since)
        for connection, since in [*self.sending.items()]:
            if connection.is_held_back:
                self.sending[connection] = since + interval
            elif now - since > self.body_grace + connection.body_size / self.min_body_rate:
                connection.refuse(408)
        for connection, (since, left) in [*self.stalled.items()]:
            size = connection.transport.get_write_buffer_size()
            if size < left:
                self.stalled[connection] = now, size
            elif now - since > self.response_timeout:
                connection.transport.abort()
        if self.waiting or self.sending or self.stalled:
            self.watch(loop)


class _LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits."""

    def __init__(self, limits: _Connections, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._phase = _NEW
        self._received = 0  # bytes of the current request, without those of the segment in which it began
        self._refusal = 400
        self.body_size = 0

    @property
    def is_held_back(self) -> bool:
        """Whether the rest of the body waits for the application, not for the client."""
        cycle = self._last_cycle()
        return self.flow.read_paused or (cycle is not None and cycle.waiting_for_100_continue)

    def check_waiting(self, seconds: float) -> None:
        """Close a connection that has waited so long for a head, or that is idle for too long."""
        if self._phase == _HEAD:
            self.refuse(408)
        elif self._phase == _NEW or seconds > self.timeout_keep_alive:
            self._limits.discard(self)
            self.transport.close()

    def refuse(self, status: int) -> None:
        """Answer with a status if no response has started, and close."""
        self._limits.discard(self)
        self._phase = _SERVING
        cycle = self._last_cycle()
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(STATUS_LINE[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        limits = self._limits
        if len(self.connections) > limits.max_connections:
            replaced = limits.least_active(self.loop.time())
            if replaced is None:
                limits.count_refused(self.loop)
                self.refuse(503)
                return
            limits.discard(replaced)
            replaced.transport.abort()
        limits.waiting[self] = self.loop.time()
        limits.watch(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._phase <= _IDLE:
            self._begin()
        self._received += len(data)
        super().data_received(data)
        phase, limits = self._phase, self._limits
        if phase == _SERVING or self.transport.is_closing():
            return
        if self._received > limits.max_head + (1 + _CHUNK_OVERHEAD) * self.body_size:
            self.refuse(431)
        elif phase == _HEAD:
            limits.waiting.setdefault(self, self.loop.time())
            limits.watch(self.loop)
        elif phase == _BODY and self not in limits.sending:
            limits.sending[self] = self.loop.time()
            limits.watch(self.loop)

    def send_400_response(self, msg: str) -> None:
        if self._refusal == 400:
            self._limits.discard(self)
            super().send_400_response(msg)
        else:
            self.refuse(self._refusal)

    def handle_websocket_upgrade(self) -> None:
        self._limits.discard(self)
        self._phase = _SERVING
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        self._begin()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        limits = self._limits
        size = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if size > limits.max_head or len(self.headers) > limits.max_headers:
            self._refusal = 431
            raise ValueError("the head is too large")  # the parser stops, and `send_400_response` is called
        self._phase = _BODY
        limits.waiting.pop(self, None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.body_size += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._limits.sending.pop(self, None)
        self._phase = _SERVING
        super().on_message_complete()
        cycle = self._last_cycle()
        if cycle is not None and cycle.response_complete:
            self._rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._phase == _SERVING and self.timeout_keep_alive_task is not None:
            self._rest()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limits.stalled[self] = self.loop.time(), self.transport.get_write_buffer_size()
        self._limits.watch(self.loop)

    def resume_writing(self) -> None:
        self._limits.stalled.pop(self, None)
        super().resume_writing()

    def _last_cycle(self) -> RequestResponseCycle | None:
        """The last request whose head was complete; uvicorn's annotation ignores that there may be none."""
        return self.cycle

    def _begin(self) -> None:
        """Expect the head of a new request."""
        self._phase = _HEAD
        self._received = self.body_size = 0
        self._limits.waiting.pop(self, None)

    def _rest(self) -> None:
        """Expect nothing: the connection is idle."""
        self._phase = _IDLE
        self._limits.waiting[self] = self.loop.time()
        self._limits.watch(self.loop)
