"""Messages to users for FastAPI and Starlette routes. Needs Starlette.

    @app.websocket("/notifications")
    async def notifications(websocket: WebSocket, session: ...) -> None:
        await fanout_socket(websocket, store[NOTES].connect(user_id=session.user_id))

What goes over the wire, and the close codes: `websocket_fanout`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocketDisconnect

from ephemera.web.websocket_fanout import send_messages

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from ephemera.patterns.fanout import Connection


async def fanout_socket(websocket: WebSocket, connection: Connection[Any]) -> None:
    """Accept a WebSocket and send it what its user gets, until it leaves or is too slow."""
    with suppress(WebSocketDisconnect):
        await send_messages(connection, websocket.receive, websocket.send)
