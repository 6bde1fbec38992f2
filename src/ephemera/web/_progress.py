"""Progress for FastAPI and Starlette routes: server-sent events and WebSockets. Needs Starlette.

    @app.get("/jobs/{job_id}/events", responses=EVENTS)
    async def events(request: Request, job_id: str) -> Response:
        ...                                                     # 404 and 403 are the route's own business
        progress = store[PROGRESS]
        after = last_event_id(request.scope)
        return ProgressResponse(progress.listen(job_id=job_id, after=after, snapshot=load_job))

    @app.websocket("/jobs/{job_id}/ws")
    async def live(websocket: WebSocket, job_id: str) -> None:
        progress, after = store[PROGRESS], last_event_id(websocket.scope)
        await progress_socket(websocket, progress.listen(job_id=job_id, after=after, snapshot=load_job))

Both take `allowed=RequestSession.of(request).lives`, or another question: who was signed out or blocked
meanwhile is then disconnected within ten seconds. What goes over the wire: `sse` and `websocket_progress`. A
server that stops waits for open connections: give it a limit, such as uvicorn's
`--timeout-graceful-shutdown 5`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from ephemera.patterns.progress import Listener
from ephemera.web._reauthorize import Allowed, while_allowed
from ephemera.web._sse import HEADERS, last_event_id, send_events
from ephemera.web._websocket_progress import send_messages

__all__ = ["EVENTS", "ProgressResponse", "last_event_id", "progress_socket"]

EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: messages, then `end`; `snapshot` where something may be missing",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    204: {"description": "There is nothing more to come"},
}
"""For a route's `responses`: what a `ProgressResponse` answers."""


class ProgressResponse(Response):
    """A response that goes on as long as there is progress."""

    def __init__(self, listener: Listener[Any], *, allowed: Allowed | None = None) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({name.decode(): value.decode() for name, value in HEADERS})
        self._listener = listener
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Send it."""
        async with while_allowed(self._allowed, self._listener.close):
            await send_events(self._listener, receive, send, self.raw_headers)


async def progress_socket(
    websocket: WebSocket, listener: Listener[Any], *, allowed: Allowed | None = None
) -> None:
    """Accept a WebSocket and send progress until its end, or until the client leaves or is not `allowed`."""
    async with while_allowed(allowed, listener.close):
        with suppress(WebSocketDisconnect):
            await send_messages(listener, websocket.receive, websocket.send)
