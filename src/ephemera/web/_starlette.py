"""Progress and messages to users for FastAPI and Starlette routes. Needs Starlette.

    @app.get("/jobs/{job_id}/events", responses=EVENT_RESPONSES)
    async def events(request: Request, job_id: str) -> Response:
        ...                                                     # 404 and 403 are up to the route
        after = last_event_id(request.scope)
        return ProgressResponse(store[PROGRESS].listen(job_id=job_id, after=after, snapshot=load_job))

    @app.websocket("/jobs/{job_id}/ws")
    async def events_socket(websocket: WebSocket, job_id: str) -> None:
        after = last_event_id(websocket.scope)
        listener = store[PROGRESS].listen(job_id=job_id, after=after, snapshot=load_job)
        await progress_websocket(websocket, listener)

    @app.websocket("/notifications")
    async def notifications(websocket: WebSocket, session: ...) -> None:
        connection = store[NOTES].connect(user_id=session.user_id)
        await fanout_websocket(websocket, connection, allowed=RequestSession.of(websocket).is_valid)

With `allowed`, a client that was signed out or blocked is disconnected within ten seconds. A server that
stops waits for open connections: give it a limit, such as uvicorn's `--timeout-graceful-shutdown 5`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from ephemera.patterns.fanout import FanoutConnection
from ephemera.patterns.progress import Listener
from ephemera.web._streams import (
    SSE_HEADERS,
    Allowed,
    send_fanout_websocket,
    send_progress_sse,
    send_progress_websocket,
    while_allowed,
)

EVENT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: messages, then `end`; `snapshot` where events may be missing",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    204: {"description": "There are no more events"},
}
"""For a route's `responses`: those of a `ProgressResponse`."""


class ProgressResponse(Response):
    """A response that continues as long as there is progress.

    `allowed` is asked every ten seconds whether the client may still listen; `status_code` is for
    documentation.
    """

    media_type = "text/event-stream"

    def __init__(
        self, listener: Listener[Any], *, allowed: Allowed | None = None, status_code: int = 200
    ) -> None:
        # FastAPI documents the default of `status_code`; with nothing left to send it is 204 anyway.
        self.status_code = status_code
        self.background = None
        self.init_headers({name.decode(): value.decode() for name, value in SSE_HEADERS})
        self._listener = listener
        self._allowed = allowed

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        async with while_allowed(self._allowed, self._listener.close):
            await send_progress_sse(self._listener, receive, send, self.raw_headers)


async def progress_websocket(
    websocket: WebSocket, listener: Listener[Any], *, allowed: Allowed | None = None
) -> None:
    """Send progress over a WebSocket until the end, or until the client leaves or is no longer `allowed`."""
    async with while_allowed(allowed, listener.close):
        with suppress(WebSocketDisconnect):
            await send_progress_websocket(listener, websocket.receive, websocket.send)


async def fanout_websocket(
    websocket: WebSocket, connection: FanoutConnection[Any], *, allowed: Allowed | None = None
) -> None:
    """Send the messages of a user until the client leaves, is too slow or no longer `allowed`."""
    async with while_allowed(allowed, connection.close):
        with suppress(WebSocketDisconnect):
            await send_fanout_websocket(connection, websocket.receive, websocket.send)
