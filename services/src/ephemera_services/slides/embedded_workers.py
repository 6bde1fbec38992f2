"""Workers beside the service, so that one command is enough to try it.

In production workers are separate processes (`ephemera worker slides`), one or more per queue. With embedded
servers the service starts two, the second of which reads documents, with its own environment and the URLs of
its servers, and stops them at the end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ephemera_services.runtime import Resources
from ephemera_services.slides.settings import Settings

_DEFAULT_PROCESSES = 2  # with embedded servers
_STOP_TIMEOUT = 20  # seconds
_START = """
import ctypes, os, sys
if sys.platform == "linux":  # exit with the service, even if it is killed
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    if os.getppid() != int(sys.argv.pop(1)):
        sys.exit(1)
from ephemera.cli import main
sys.argv[0] = "ephemera"
main()
"""


@asynccontextmanager
async def embedded_workers(settings: Settings, resources: Resources) -> AsyncIterator[None]:
    """Run workers beside the service, if configured."""
    number = settings.workers
    if number is None:
        number = _DEFAULT_PROCESSES if settings.url is None else 0
    if number == 0:
        yield
        return
    environment = {**os.environ, **_server_urls(resources)}
    workers: list[Process] = []
    try:
        workers.append(await _start(environment, "--processes", str(number)))
        workers.append(await _start(environment, "--queue", "ingestion", "--processes", "1"))
        yield
    finally:
        await asyncio.gather(*map(_stop, workers))


async def _start(environment: dict[str, str], *options: str) -> Process:
    command = (sys.executable, "-c", _START, *_parent(), "worker", "slides", *options)
    return await asyncio.create_subprocess_exec(*command, env=environment, stdin=asyncio.subprocess.DEVNULL)


async def _stop(worker: Process) -> None:
    if worker.returncode is None:
        worker.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await worker.wait()
        except TimeoutError:
            worker.kill()
            await worker.wait()


def _parent() -> list[str]:
    return [str(os.getpid())] if sys.platform == "linux" else []


def _server_urls(resources: Resources) -> dict[str, str]:
    """In the environment: command lines are visible to every user of the machine."""
    database = resources.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    urls = {"EPHEMERA_URL": resources.redis_urls[0], "EPHEMERA_DATABASE_URL": database}
    if len(resources.redis_urls) > 1:
        urls["EPHEMERA_QUEUE_URL"] = resources.redis_urls[1]
    return urls
