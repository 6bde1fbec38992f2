"""The processes of a demonstration: started together, watched, and stopped, with their logs in one folder.

Each ends with this process, however that ends (`child`). One that ends before it is told to is reported, with
the end of its log; nobody starts it again.
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
from ephemera_services.demo.process_plan import Part

_STARTS_WITHIN = 180.0  # seconds; it takes some ten, but a machine may be slow, and busy
_ENDS_WITHIN = 12.0  # seconds after SIGTERM; then SIGKILL
_LOOK_EVERY = 0.1  # seconds
_TAIL = 12  # lines of a log that are shown


class Ended(NamedTuple):
    """A process that ended though nobody told it to."""

    name: str
    exit_code: int
    log: Path
    tail: str

    @property
    def killed(self) -> bool:
        """Whether a signal ended it, of which its log knows nothing."""
        return self.exit_code < 0

    @property
    def how(self) -> str:
        """How it ended, in words."""
        if not self.killed:
            return f"ended with exit code {self.exit_code}"
        with suppress(ValueError):  # a signal without a name
            return f"was killed ({signal.Signals(-self.exit_code).name})"
        return f"was killed (signal {-self.exit_code})"


class DidNotStart(EphemeraError):
    """A process that ended before it was ready, or did not become ready."""


class Process:
    """One process that runs."""

    def __init__(self, part: Part, log: Path, running: asyncio.subprocess.Process) -> None:
        self.part = part
        self.log = log
        self.pid = running.pid
        self.expected = False
        """Whether its end is somebody's intention."""
        self._running = running

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._running.returncode

    def kill(self) -> None:
        """End it as a crash does; whoever it started has to notice by themselves."""
        self.expected = True
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        return await self._running.wait()

    async def stop(self) -> None:
        """End it in good order, and by force when that takes too long; its whole group is gone then."""
        self.expected = True
        with suppress(ProcessLookupError):
            self._running.terminate()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ENDS_WITHIN):
                    await self._running.wait()
        finally:  # also if we are told to hurry: the wait is cancelled then
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        await self._running.wait()

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL:])

    async def is_ready(self, http: httpx.AsyncClient) -> bool:
        """Whether it serves, or works."""
        if self.part.url is None:
            return self.part.says in self.log.read_text(errors="replace")
        try:
            answer = await http.get(self.part.url + self.part.ready_at)
        except httpx.TransportError:
            return False
        return answer.is_success


class Processes:
    """All processes of a demonstration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._all: dict[str, Process] = {}

    def __getitem__(self, name: str) -> Process:
        return self._all[name]

    def all(self) -> list[Process]:
        """Every process, whether it still runs or not."""
        return list(self._all.values())

    async def start(self, part: Part) -> Process:
        """Start one; it is not ready yet."""
        log = self.folder / f"{part.name}.log"
        with log.open("ab") as output:
            running = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", part.module, *part.command),
                env=dict(part.environment),
                stdin=asyncio.subprocess.PIPE,  # its end is the child's
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        process = self._all[part.name] = Process(part, log, running)
        return process

    async def until_ready(self, tell: Callable[[list[str]], None]) -> None:
        """Return when all are ready; `tell` is told who is not, again and again."""
        waiting = dict(self._all)
        async with httpx.AsyncClient(timeout=5) as http:
            try:
                async with asyncio.timeout(_STARTS_WITHIN):
                    while waiting:
                        for name, process in list(waiting.items()):
                            if await process.is_ready(http):
                                del waiting[name]
                            elif process.exit_code is not None:
                                raise DidNotStart(_described(self._ended(process)))
                        if waiting:
                            tell(list(waiting))
                            await asyncio.sleep(_LOOK_EVERY)
            except TimeoutError:
                late = ", ".join(waiting)
                raise DidNotStart(
                    f"not ready within {_STARTS_WITHIN:.0f} s: {late}; their logs are in {self.folder}"
                ) from None

    async def watch(self, report: Callable[[Ended], None]) -> None:
        """Report each process that ends unexpectedly, once, for as long as this is awaited."""
        reported: set[int] = set()
        while True:
            for process in self._all.values():
                if process.exit_code is not None and not process.expected and process.pid not in reported:
                    reported.add(process.pid)
                    report(self._ended(process))
            await asyncio.sleep(_LOOK_EVERY)

    async def stop(self) -> None:
        """Stop all of them, at the same time."""
        await asyncio.gather(*(each.stop() for each in self._all.values()), return_exceptions=True)

    def _ended(self, process: Process) -> Ended:
        code = 1 if process.exit_code is None else process.exit_code
        return Ended(process.part.name, code, process.log, process.tail())


@asynccontextmanager
async def running(parts: Iterable[Part], folder: Path) -> AsyncIterator[Processes]:
    """The processes of a cast, started and not yet ready; none of them is left afterwards."""
    processes = Processes(folder)
    try:
        for part in parts:
            await processes.start(part)
        yield processes
    finally:
        await processes.stop()


def _described(ended: Ended) -> str:
    how = f"{ended.name} {ended.how} before it was ready"
    return f"{how}; {ended.log} ends so:\n{ended.tail}"
