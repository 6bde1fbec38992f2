"""Workers that the service runs itself: for a look at it, with one command and nothing else.

In production they are processes of their own (`ephemera worker slides`), one or more for each queue.
Here one is started with the service's environment and told where its servers are, and ended with it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ephemera_services.runtime import Resources
from ephemera_services.slides.settings import Settings

_USUAL = 2  # processes, with embedded servers
_PATIENCE = 20  # seconds to end in
_START = """
import ctypes, os, sys
if sys.platform == "linux":  # die with the service, however that dies: its jobs go on elsewhere
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    if os.getppid() != int(sys.argv.pop(1)):
        sys.exit(1)
from ephemera.cli import main
sys.argv[0] = "ephemera"
main()
"""


@asynccontextmanager
async def own_workers(settings: Settings, resources: Resources) -> AsyncIterator[None]:
    """A worker beside the service, if it shall have one."""
    number = settings.workers
    if number is None:
        number = _USUAL if settings.url is None else 0
    if number == 0:
        yield
        return
    worker = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-c",
            _START,
            *_parent(),
            "worker",
            "slides",
            "--processes",
            str(number),
        ),
        env={**os.environ, **_where(resources)},
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        if worker.returncode is None:
            worker.terminate()
            try:
                async with asyncio.timeout(_PATIENCE):
                    await worker.wait()
            except TimeoutError:
                worker.kill()
                await worker.wait()


def _parent() -> list[str]:
    return [str(os.getpid())] if sys.platform == "linux" else []


def _where(resources: Resources) -> dict[str, str]:
    """By the environment: a command line is seen by everybody on the machine."""
    database = resources.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    found = {"EPHEMERA_URL": resources.redis_urls[0], "EPHEMERA_DATABASE_URL": database}
    if len(resources.redis_urls) > 1:
        found["EPHEMERA_QUEUE_URL"] = resources.redis_urls[1]
    return found
