"""An application under uvicorn, in its own process and on its own core.

Left to the scheduler, Valkey and the load sometimes run on the application's core while another core is
idle. How often is a matter of luck, and it penalizes every contender that calls Valkey, so the figure would
measure the scheduler as much as the code. In production neither of them is on that core. So the application
gets the first core for itself, and everything else gets the rest, for every contender alike. A machine with
one core, or without CPU affinity, is left as it is.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from benchmarks.servers import Servers
from ephemera.embedded import free_ports

UVICORN = {"loop": "uvloop", "http": "httptools", "log-level": "warning", "timeout-keep-alive": "600"}
_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@asynccontextmanager
async def serve_app(application: str, servers: Servers) -> AsyncIterator[int]:
    """Serve an application, such as `benchmarks.web_app:bare`; yields its port. `BENCH_URL` is the server."""
    port = free_ports(1)[0]
    options = [word for name, value in UVICORN.items() for word in (f"--{name}", value)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", application, "--port", str(port)),
        *("--no-access-log", *options),
        env={**os.environ, "BENCH_URL": servers.valkey.url},
    )
    try:
        with on_separate_cores(process.pid, servers.valkey.pid):
            yield port
    finally:
        with suppress(ProcessLookupError):  # it could not start, and has logged why
            process.terminate()
        await process.wait()


@contextmanager
def on_separate_cores(application: int, *others: int) -> Iterator[None]:
    """Give a process the first core, and the others and this process the rest, within a block."""
    if len(_CORES) < 2:
        yield
        return
    os.sched_setaffinity(application, _CORES[:1])
    for other in (*others, os.getpid()):
        os.sched_setaffinity(other, _CORES[1:])
    try:
        yield
    finally:
        os.sched_setaffinity(os.getpid(), _CORES)
