"""A demonstration from its start to its end: everything up, then traffic until it is stopped, or the tour.

The first Ctrl-C or SIGTERM stops everything in order: visitors, services and workers, then servers. The
second one does not wait for them.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ephemera_services.demo.claims import claim_given
from ephemera_services.demo.flag_errors import Given
from ephemera_services.demo.process_plan import Cast, cast
from ephemera_services.demo.processes import Ended, Processes, running
from ephemera_services.demo.screen import Screen
from ephemera_services.demo.servers import Servers, open_servers
from ephemera_services.demo.stand_in_model import stand_in_model
from ephemera_services.demo.tour import toured
from ephemera_services.demo.traffic import playing
from ephemera_services.demo.traffic.slides import unlimited
from ephemera_services.demo.visitors import Scene

_SECONDS_A_SLIDE = 0.8
_TELL_EVERY = 1.0  # seconds


@dataclass(frozen=True)
class Stage:
    """Everything that runs."""

    cast: Cast
    servers: Servers
    processes: Processes
    scene: Scene
    screen: Screen


async def demonstrate(given: Given, screen: Screen) -> int:
    """Traffic until told to stop; the exit code."""
    with suppress(asyncio.CancelledError):
        async with _staged(given, screen) as stage, playing(stage.scene):
            screen.everything(stage.cast, stage.servers, stage.processes, given)
            with screen.working("traffic begins"):
                while True:
                    await asyncio.sleep(_TELL_EVERY)
                    screen.figures(stage.scene.tally)
    return 0


async def tour(given: Given, screen: Screen) -> int:
    """The tour; the exit code is 0 if all of it held."""
    held = False
    try:
        async with _staged(given, screen) as stage:
            held = await toured(stage)
    except asyncio.CancelledError:
        screen.line("[bold red]●[/] The tour was interrupted.")
    return 0 if held else 1


def until_told(work: Coroutine[None, None, int]) -> Coroutine[None, None, int]:
    """The same, cancelled by SIGINT or SIGTERM; a second one cancels its farewell."""

    async def watched() -> int:
        task = asyncio.ensure_future(work)
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:  # nohup is respected
                asyncio.get_running_loop().add_signal_handler(each, task.cancel)
        return await task

    return watched()


@asynccontextmanager
async def _staged(given: Given, screen: Screen) -> AsyncIterator[Stage]:
    """Everything up and shown; nothing of it is left afterwards."""
    began = time.monotonic()
    await claim_given(given)  # nothing has begun that would have to be said farewell to
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(_logs(screen))
        with screen.working("The servers start ..."):
            model = await stack.enter_async_context(stand_in_model(_SECONDS_A_SLIDE))
            servers = await stack.enter_async_context(open_servers(given))
            plan = cast(servers, model.url)
            processes = await stack.enter_async_context(running(plan.parts, logs.folder))
            await processes.until_ready(lambda late: screen.working_on(f"Waiting for {', '.join(late)} ..."))
            scene = Scene(plan.urls, servers)
            await unlimited(scene)
        screen.ready(time.monotonic() - began, processes)

        def report(ended: Ended) -> None:
            logs.keep = True
            screen.ended(ended)

        watching = asyncio.create_task(processes.watch(report))
        stack.callback(watching.cancel)
        stack.callback(screen.stopping)
        yield Stage(plan, servers, processes, scene, screen)


@dataclass
class _Logs:
    """The folder of all logs; it stays when one of them may be needed."""

    folder: Path
    keep: bool = False


@contextmanager
def _logs(screen: Screen) -> Iterator[_Logs]:
    logs = _Logs(Path(tempfile.mkdtemp(prefix="ephemera-demo-")))
    screen.line(f"[dim]● The logs are in {logs.folder}[/]")
    try:
        yield logs
    except Exception:
        logs.keep = any(logs.folder.iterdir())
        raise
    finally:
        if not logs.keep:
            shutil.rmtree(logs.folder, ignore_errors=True)
        screen.stopped(logs.folder if logs.keep else None)
