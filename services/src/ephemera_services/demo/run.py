"""The demo from start to end: everything up, then traffic until it is stopped, or the tour.

The first Ctrl-C or SIGTERM stops everything in order: clients, services and workers, then servers. A second
one does not wait for them.
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

from ephemera_services.demo.clients import TrafficContext
from ephemera_services.demo.external_servers import ServerUrls, claim_servers
from ephemera_services.demo.fake_model import serve_fake_model
from ephemera_services.demo.process_plan import plan_processes
from ephemera_services.demo.processes import ProcessExit, run_processes
from ephemera_services.demo.screen import Screen
from ephemera_services.demo.servers import open_servers
from ephemera_services.demo.tour import RunningDemo, run_steps
from ephemera_services.demo.traffic import generate_traffic

_SECONDS_PER_SLIDE = 0.8
_REPORT_INTERVAL = 1.0  # seconds


async def run_demo(external: ServerUrls, screen: Screen) -> int:
    """Generate traffic until cancelled; the exit code."""
    with suppress(asyncio.CancelledError):
        async with start_demo(external, screen) as demo, generate_traffic(demo.traffic):
            screen.overview(demo.plan, demo.servers, demo.processes, external)
            with screen.status("traffic starts"):
                while True:
                    await asyncio.sleep(_REPORT_INTERVAL)
                    screen.traffic(demo.traffic.counts)
    return 0


async def run_tour(external: ServerUrls, screen: Screen) -> int:
    """Run the tour; the exit code is 0 if every step passed."""
    passed = False
    try:
        async with start_demo(external, screen) as demo:
            passed = await run_steps(demo)
    except asyncio.CancelledError:
        screen.line("[bold red]●[/] The tour was interrupted.")
    return 0 if passed else 1


def cancel_on_signals(work: Coroutine[None, None, int]) -> Coroutine[None, None, int]:
    """Wrap a coroutine so that SIGINT and SIGTERM cancel it; a second signal cancels its cleanup."""

    async def cancellable() -> int:
        task = asyncio.ensure_future(work)
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:  # nohup is respected
                asyncio.get_running_loop().add_signal_handler(each, task.cancel)
        return await task

    return cancellable()


@asynccontextmanager
async def start_demo(external: ServerUrls, screen: Screen) -> AsyncIterator[RunningDemo]:
    """Start everything; stop and delete everything afterwards."""
    started = time.monotonic()
    await claim_servers(external)  # before anything starts that would have to be stopped
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(_log_folder(screen))
        with screen.status("Starting the servers ..."):
            model = await stack.enter_async_context(serve_fake_model(_SECONDS_PER_SLIDE))
            servers = await stack.enter_async_context(open_servers(external))
            plan = plan_processes(servers, model.url)
            processes = await stack.enter_async_context(run_processes(plan.specs, logs.folder))
            await processes.wait_until_ready(
                lambda late: screen.update_status(f"Waiting for {', '.join(late)} ...")
            )
            traffic = TrafficContext(plan.urls, servers, plan.feed_token)
        screen.ready(time.monotonic() - started, processes)

        def report(exited: ProcessExit) -> None:
            logs.keep = True
            screen.process_exited(exited)

        watching = asyncio.create_task(processes.watch(report))
        stack.callback(watching.cancel)
        stack.callback(screen.stopping)
        yield RunningDemo(plan, servers, processes, traffic, screen)


@dataclass
class _LogFolder:
    """The folder of all logs; it is kept if one of them may be needed."""

    folder: Path
    keep: bool = False


@contextmanager
def _log_folder(screen: Screen) -> Iterator[_LogFolder]:
    logs = _LogFolder(Path(tempfile.mkdtemp(prefix="ephemera-demo-")))
    screen.line(f"[dim]● Logs: {logs.folder}[/]")
    try:
        yield logs
    except Exception:
        logs.keep = any(logs.folder.iterdir())
        raise
    finally:
        if not logs.keep:
            shutil.rmtree(logs.folder, ignore_errors=True)
        screen.stopped(logs.folder if logs.keep else None)
