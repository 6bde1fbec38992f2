"""Messages to users for FastAPI and Starlette routes. Needs Starlette.

    @app.websocket("/notifications")
    async def notifications(websocket: WebSocket, session: ...) -> None:
        notes = store[NOTES].connect(user_id=session.user_id)
        await fanout_socket(websocket, notes, allowed=RequestSession.of(websocket).lives)

With `allowed`, who was signed out or blocked meanwhile is disconnected within ten seconds.
What goes over the wire, and the close codes: `websocket_fanout`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from ephemera.patterns.fanout import Connection
from ephemera.web._reauthorize import Allowed, while_allowed
from ephemera.web._websocket_fanout import send_messages


async def fanout_socket(
    websocket: WebSocket, connection: Connection[Any], *, allowed: Allowed | None = None
) -> None:
    """Accept a WebSocket and send it what its user gets, until it leaves, is too slow or not `allowed`."""
    async with while_allowed(allowed, connection.close):
        with suppress(WebSocketDisconnect):
            await send_messages(connection, websocket.receive, websocket.send)
