"""OPS2: at SIGTERM open streams were kept for up to 10 s, and then cut with a CancelledError each."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest
import uvicorn
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import ConnectionClosed

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera_services.runtime import ServiceServer
from tests.patterns.progress_fixtures import JobDatabase
from tests.web.streaming_app import CATALOGUES, application
from tests.wire.conditions import eventually


async def test_ops2_streams_end_at_once_with_a_clean_close(
    server: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """Without any patience for open connections, a stop ends SSE and WebSockets, and nothing is cut."""
    async with connect(server.url, *CATALOGUES) as store:
        config = uvicorn.Config(
            application(store, JobDatabase()),
            port=0,
            log_level="warning",
            lifespan="off",
            ws="websockets-sansio",
        )
        service = ServiceServer(config)
        running = asyncio.create_task(service.serve())
        await eventually(lambda: service.started)
        at = f"127.0.0.1:{service.servers[0].sockets[0].getsockname()[1]}"
        async with (
            asyncio.timeout(60),
            httpx.AsyncClient(timeout=60) as client,
            client.stream("GET", f"http://{at}/jobs/7/events") as response,
            websocket(f"ws://{at}/jobs/7/ws") as live,
            websocket(f"ws://{at}/notifications?user=ann") as notes,
        ):
            parts = response.aiter_bytes()
            await anext(parts)
            await live.recv()
            service.should_exit = True
            rest = b"".join([part async for part in parts])  # raises if the stream is cut
            closes = [await _close_code(each) for each in (live, notes)]
            await running
    assert b"event: end" not in rest
    assert closes == [1012, 1012]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def _close_code(connection: object) -> int | None:
    """The code with which the server closes a WebSocket."""
    try:
        while True:
            await connection.recv()  # type: ignore[attr-defined]
    except ConnectionClosed as closed:
        return None if closed.rcvd is None else closed.rcvd.code
