"""A FastAPI service with progress and notifications, on a real server.

As a program (`python -m tests.web.streaming_app REDIS_URL`) it prints its port; the tests run it so, or in
their own process by `serving`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket

from ephemera import Store, connect
from ephemera.web import (
    EVENT_RESPONSES,
    Allowed,
    ProgressResponse,
    fanout_websocket,
    last_event_id,
    progress_websocket,
)
from tests.patterns import fanout_fixtures
from tests.patterns.fanout_fixtures import NOTES
from tests.patterns.progress_fixtures import CATALOGUE, PROGRESS, SHORT, JobDatabase

CATALOGUES = (CATALOGUE, fanout_fixtures.CATALOGUE)


def application(store: Store, truth: JobDatabase, allowed: Allowed | None = None) -> FastAPI:
    """Progress of jobs by server-sent events and by WebSocket."""
    app = FastAPI()

    @app.get("/jobs/{job_id}/events", responses=EVENT_RESPONSES)
    async def events(request: Request, job_id: str) -> Response:
        after = last_event_id(request.scope)
        listener = store[PROGRESS].listen(job_id=job_id, after=after, snapshot=truth.snapshot)
        return ProgressResponse(listener, allowed=allowed)

    @app.get("/short/{job_id}/events", responses=EVENT_RESPONSES)
    async def short(request: Request, job_id: str) -> Response:
        after = last_event_id(request.scope)
        return ProgressResponse(store[SHORT].listen(job_id=job_id, after=after, snapshot=truth.snapshot))

    @app.websocket("/jobs/{job_id}/ws")
    async def live(websocket: WebSocket, job_id: str) -> None:
        after = last_event_id(websocket.scope)
        listener = store[PROGRESS].listen(job_id=job_id, after=after, snapshot=truth.snapshot)
        await progress_websocket(websocket, listener, allowed=allowed)

    @app.websocket("/notifications")
    async def notifications(websocket: WebSocket, user: str) -> None:
        await fanout_websocket(websocket, store[NOTES].connect(user_id=user), allowed=allowed)

    return app


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[int]:
    """Serve an application in this process, and yield its port."""
    config = uvicorn.Config(
        app, port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=1, ws="websockets-sansio"
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.001)
            assert not task.done()
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def main(url: str) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    async with (
        connect(url, *CATALOGUES, required=False) as store,
        serving(application(store, JobDatabase())) as port,
    ):
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
