"""The rows of progress: SSE clients of one job, and how long each event takes to reach them.

The application runs in a uvicorn process (uvloop, httptools) on a core of its own (`benchmarks.hosting`
tells why: each of its writes would wake the clients on it otherwise), the clients in another process, on raw
sockets; events are appended here, ten a second, with the moment of the append in them. The figure is the p99
over all events and clients, in milliseconds from before the append to the bytes at the client, by the one
clock that all processes share. A round in which a client lacks an event, or has one twice, fails.

The peer is what one writes first: Starlette's StreamingResponse over redis-py's `XREAD BLOCK`, a connection
for each client. It does not keep up with 5,000.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count

from benchmarks.progress_app import CATALOGUE, PROGRESS, Tick
from benchmarks.rows import Absolute, Opener, Round, Row
from benchmarks.servers import Servers
from benchmarks.uvicorn_process import UVICORN, on_separate_cores
from ephemera import Store, connect
from ephemera.embedded import free_ports

_EVERY = 0.1  # seconds
_numbers = count()


class Delivery:
    """A round that appends events and has the clients say how long they took."""

    def __init__(self, store: Store, job: str, clients: Process) -> None:
        self._store = store
        self._job = job
        self._clients = clients

    async def __call__(self, seconds: float) -> float:
        """The p99 in milliseconds."""
        events = max(5, round(seconds / _EVERY))
        for _ in range(events):
            await self._store[PROGRESS].append(Tick(time.monotonic_ns()), job_id=self._job)
            await asyncio.sleep(_EVERY)
        return float(await _ask(self._clients, str(events)))


async def _ask(clients: Process, line: str) -> str:
    assert clients.stdin is not None
    assert clients.stdout is not None
    clients.stdin.write(f"{line}\n".encode())
    answer = (await clients.stdout.readline()).decode().strip()
    if not answer:
        raise RuntimeError("the clients gave up; see above")
    return answer


def delivered(application: str, clients_count: int) -> Opener:
    """An application under uvicorn, and this many clients that listen to it."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        job, port = f"{application}-{next(_numbers)}", free_ports(1)[0]
        options = [word for name, value in UVICORN.items() for word in (f"--{name}", value)]
        uvicorn = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "uvicorn", f"benchmarks.progress_app:{application}", "--port", str(port)),
            *("--no-access-log", *options),
            env={**os.environ, "BENCH_URL": servers.valkey.url},
            stderr=asyncio.subprocess.DEVNULL,  # it complains of connections that it has to cut at its end
        )
        clients = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.progress_clients"),
            *(str(port), f"/jobs/{job}/events", str(clients_count)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with connect(f"{servers.valkey.url}?timeout=30", CATALOGUE) as store:
                await store[PROGRESS].append(Tick(time.monotonic_ns()), job_id=job)
                with on_separate_cores(uvicorn.pid, clients.pid, servers.valkey.pid):
                    await _ask(clients, "connect")
                    yield Delivery(store, job, clients)
        finally:
            for process in (clients, uvicorn):
                with suppress(ProcessLookupError):  # it has given up already
                    process.kill()
                await process.wait()

    return opened


ROWS = (
    Row(
        "progress: 1,000 SSE clients of one job, p99 of an event's way",
        delivered("ours", 1000),
        {"redis-py XREAD": delivered("naive", 1000)},
        (Absolute(50, "ms", at_most=True),),
        unit="ms",
        higher_is_better=False,
    ),
    Row(
        "progress: 5,000 SSE clients of one job, p99 of an event's way",
        delivered("ours", 5000),
        targets=(Absolute(60, "ms", at_most=True),),
        unit="ms",
        higher_is_better=False,
    ),
)
