"""The processes of the demo: started together, watched, and stopped, with their logs in one folder.

Each exits when this process does (`child`). One that exits unexpectedly is reported with the end of its log,
and is not restarted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx

from ephemera.errors import EphemeraError
from ephemera_services.demo.process_plan import ProcessSpec

_START_TIMEOUT = 180.0  # seconds; usually about ten, but a machine may be slow and busy
_STOP_TIMEOUT = 12.0  # seconds after SIGTERM; then SIGKILL
_POLL_INTERVAL = 0.1  # seconds
_TAIL = 12  # lines of a log that are shown


class ProcessExit(NamedTuple):
    """An unexpected exit."""

    name: str
    exit_code: int
    log: Path
    tail: str

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended it, which its log does not show."""
        return self.exit_code < 0

    @property
    def description(self) -> str:
        """How the process ended."""
        if not self.was_killed:
            return f"exited with code {self.exit_code}"
        with suppress(ValueError):  # a signal without a name
            return f"was killed ({signal.Signals(-self.exit_code).name})"
        return f"was killed (signal {-self.exit_code})"


class StartFailed(EphemeraError):
    """A process exited before it was ready, or did not become ready in time."""


class Process:
    """One running process."""

    def __init__(self, spec: ProcessSpec, log: Path, process: asyncio.subprocess.Process) -> None:
        self.spec = spec
        self.log = log
        self.pid = process.pid
        self.exit_expected = False
        self._process = process

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    def kill(self) -> None:
        """Kill it as a crash would; its own children are not signalled."""
        self.exit_expected = True
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for its exit; the exit code."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Terminate it, and kill its whole group if that takes too long."""
        self.exit_expected = True
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT):
                    await self._process.wait()
        finally:  # also when a second Ctrl-C cancels the wait
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL:])

    async def is_ready(self, http: httpx.AsyncClient) -> bool:
        """Whether it serves requests, or works."""
        if self.spec.url is None:
            return self.spec.ready_text in self.log.read_text(errors="replace")
        try:
            response = await http.get(self.spec.url + self.spec.ready_path)
        except httpx.TransportError:
            return False
        return response.is_success


class Processes:
    """All processes of the demo."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._all: dict[str, Process] = {}

    def __getitem__(self, name: str) -> Process:
        return self._all[name]

    def all(self) -> list[Process]:
        """Every process, whether it still runs or not."""
        return list(self._all.values())

    async def start(self, spec: ProcessSpec) -> Process:
        """Start one; it is not ready yet."""
        log = self.folder / f"{spec.name}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", spec.module, *spec.command),
                env=dict(spec.environment),
                stdin=asyncio.subprocess.PIPE,  # the child exits when it is closed
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        started = self._all[spec.name] = Process(spec, log, process)
        return started

    async def wait_until_ready(self, report: Callable[[list[str]], None]) -> None:
        """Return when all are ready; `report` gets the names of those that are not, repeatedly."""
        waiting = dict(self._all)
        async with httpx.AsyncClient(timeout=5) as http:
            try:
                async with asyncio.timeout(_START_TIMEOUT):
                    while waiting:
                        for name, process in list(waiting.items()):
                            if await process.is_ready(http):
                                del waiting[name]
                            elif process.exit_code is not None:
                                raise StartFailed(_describe(self._exit(process)))
                        if waiting:
                            report(list(waiting))
                            await asyncio.sleep(_POLL_INTERVAL)
            except TimeoutError:
                late = ", ".join(waiting)
                raise StartFailed(
                    f"not ready within {_START_TIMEOUT:.0f} s: {late}; their logs are in {self.folder}"
                ) from None

    async def watch(self, report: Callable[[ProcessExit], None]) -> None:
        """Report each unexpected exit once, for as long as this is awaited."""
        reported: set[int] = set()
        while True:
            for process in self._all.values():
                if (
                    process.exit_code is not None
                    and not process.exit_expected
                    and process.pid not in reported
                ):
                    reported.add(process.pid)
                    report(self._exit(process))
            await asyncio.sleep(_POLL_INTERVAL)

    async def stop(self) -> None:
        """Stop all of them, in parallel."""
        await asyncio.gather(*(each.stop() for each in self._all.values()), return_exceptions=True)

    def _exit(self, process: Process) -> ProcessExit:
        code = 1 if process.exit_code is None else process.exit_code
        return ProcessExit(process.spec.name, code, process.log, process.tail())


@asynccontextmanager
async def run_processes(specs: Iterable[ProcessSpec], folder: Path) -> AsyncIterator[Processes]:
    """Start processes, without waiting until they are ready; stop all of them afterwards."""
    processes = Processes(folder)
    try:
        for spec in specs:
            await processes.start(spec)
        yield processes
    finally:
        await processes.stop()


def _describe(exited: ProcessExit) -> str:
    return f"{exited.name} {exited.description} before it was ready; the end of {exited.log}:\n{exited.tail}"
