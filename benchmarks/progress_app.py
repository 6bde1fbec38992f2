"""The applications that `benchmarks.progress` serves: events of a job over SSE, ours and a naive one.

The server to use is in the environment variable `BENCH_URL`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from ephemera import Catalogue, connect
from ephemera.patterns.progress import Progress, Snapshot
from ephemera.web import ProgressResponse, last_event_id


class Tick(msgspec.Struct):
    """When it was appended, by the machine's monotonic clock in nanoseconds."""

    at: int


class Over(msgspec.Struct):
    """Never comes."""


CATALOGUE = Catalogue("bench-progress")
PROGRESS: Progress[Tick] = Progress(
    CATALOGUE, "bench:progress:{job_id}", Tick, wake="bench:progress", terminal=Over, max_entries=200
)


async def snapshot(job_id: str) -> Snapshot:
    """Nothing is known of any job."""
    return Snapshot({"job": job_id})


@asynccontextmanager
async def _with_store(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    async with connect(os.environ["BENCH_URL"], CATALOGUE) as store:
        yield {"store": store}


async def events(request: Request) -> ProgressResponse:
    """Ours."""
    progress = request.state.store[PROGRESS]
    job, after = request.path_params["job_id"], last_event_id(request.scope)
    return ProgressResponse(progress.listen(job_id=job, after=after, snapshot=snapshot))


async def events_by_hand(request: Request) -> StreamingResponse:
    """A reader of the stream for each client."""
    from redis.asyncio import Redis

    key = PROGRESS.key(job_id=request.path_params["job_id"])

    async def entries() -> AsyncIterator[bytes]:
        last: Any = "0"
        async with Redis.from_url(os.environ["BENCH_URL"], socket_timeout=None) as redis:
            while True:
                for _, found in await redis.xread({key: last}, block=15_000) or []:
                    for entry_id, fields in found:
                        last = entry_id
                        yield b"id: %s\ndata: %s\n\n" % (entry_id, fields[b"d"])

    return StreamingResponse(entries(), media_type="text/event-stream")


ours = Starlette(routes=[Route("/jobs/{job_id}/events", events)], lifespan=_with_store)
naive = Starlette(routes=[Route("/jobs/{job_id}/events", events_by_hand)])
