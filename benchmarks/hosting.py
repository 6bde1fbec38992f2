"""An application under uvicorn, in a process and on a core of its own.

Left to the scheduler, Valkey and the load are woken now and then on the core that the application is busy on,
which then stands still while another core idles. How often is a matter of luck, and counts against whoever
asks Valkey, so that the figure is of the scheduler as much as of the code. In production neither of them is
on that core. So the application gets the first core for itself, and all others get the rest, for every
contender alike. A machine with one core, or without a way to choose, is left as it is.
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
async def hosted(application: str, servers: Servers) -> AsyncIterator[int]:
    """The port of an application, such as `bench.web_app:bare`; `BENCH_URL` tells it the server."""
    port = free_ports(1)[0]
    options = [word for name, value in UVICORN.items() for word in (f"--{name}", value)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", application, "--port", str(port)),
        *("--no-access-log", *options),
        env={**os.environ, "BENCH_URL": servers.valkey.url},
    )
    try:
        with apart(process.pid, servers.valkey.pid):
            yield port
    finally:
        with suppress(ProcessLookupError):  # it could not start, and has said why
            process.terminate()
        await process.wait()


@contextmanager
def apart(application: int, *others: int) -> Iterator[None]:
    """Give a process the first core, and the others and ourselves the rest, for as long as this lasts."""
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
