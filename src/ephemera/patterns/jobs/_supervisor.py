"""The parent of a SQL worker: starts its processes, kills those that hang, and replaces the dead.

The parent runs no jobs and connects to nothing, so no job can block it. It shares a page of memory with each
process, the pulse: when the earliest hard limit of its attempts is, and whose that is. An attempt that is
over its time limit is cancelled by its own process. If it still runs five seconds later, because a plain
function does not end or because the event loop is blocked, the parent kills the process and starts another
one, which first hands the jobs of its predecessor to other workers: the one that the process was killed for
has used an attempt, the others have not. If a process dies otherwise, any of its jobs may be the cause
(`_rows`, Crashes). Those that may be it repeatedly, the suspects, run one at a time in a process of their
own, which the parent starts when another process reports that suspects wait, and which ends when none do.
If the first processes cannot start, the worker ends; once one was ready, the next to die at its start is
replaced like any other.

In the process, a beat on the event loop writes the earliest hard limit to the pulse. A limit that is earlier
than that is written at once: a job may block the loop before the next beat. The watchdog is a thread that
notices when the beat stops, and logs which job the loop is running and where.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import multiprocessing
import os
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from time import monotonic
from typing import Any, NamedTuple

from ephemera.patterns.jobs._run_context import Run

_CHECK = 0.2  # seconds between two looks at the pulses
_REPEAT = 1.0  # seconds between two signals to a process that is to stop
_PAUSE = 1.0  # seconds before a process is replaced that died soon after its start
_DEADLINE, _CHANGES = 0, 1  # numbers at the beginning of the page
_READY, _SUSPECTS, _NAMES = 16, 17, 18  # bytes of the page after these
_CULPRIT = struct.Struct("<1024s128s")
_NEVER = float("inf")
_BEAT = 0.25  # seconds
_BLOCKED = 1.0  # seconds without a beat after which the loop is reported as blocked
_FRAMES = 3  # of the blocked code that are logged
_log = logging.getLogger("ephemera.jobs")


class Predecessor(NamedTuple):
    """A process that is dead, and why."""

    pid: int
    culprit: str
    """The job that it was killed for; empty if it died otherwise."""
    reason: str


class Pulse:
    """What a process shares with its parent; written by the process, read by the parent at any moment.

    So the process counts its changes of the deadline, before and after each: the parent ignores what it read
    meanwhile. (`struct` clears its target before it writes, and 0 is a deadline that is long over.)
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._numbers = memoryview(self._page).cast("d")
        self._changing = threading.Lock()  # of the event loop and the watchdog
        self.reset()

    def reset(self) -> None:
        """As it is before a process has started."""
        self._numbers[_DEADLINE], self._numbers[_CHANGES] = _NEVER, 0
        self._page[_READY] = self._page[_SUSPECTS] = False

    def report_suspects(self, waiting: bool) -> None:
        """Say whether suspects wait for a process of their own."""
        self._page[_SUSPECTS] = waiting

    @property
    def suspects_wait(self) -> bool:
        """Whether the process reported that suspects wait."""
        return bool(self._page[_SUSPECTS])

    def mark_ready(self) -> None:
        """Say that the process has opened everything it needs."""
        self._page[_READY] = True

    @property
    def is_ready(self) -> bool:
        """Whether the process said so."""
        return bool(self._page[_READY])

    def set_deadline(self, deadline: float, job_id: str, kind: str) -> None:
        """Have the process killed at a moment (monotonic) for a job."""
        with self._changing:
            self._numbers[_CHANGES] += 1
            self._numbers[_DEADLINE] = deadline
            _CULPRIT.pack_into(self._page, _NAMES, job_id.encode(), kind.encode())
            self._numbers[_CHANGES] += 1

    def read(self) -> tuple[float, str, str]:
        """The deadline, and the job's id and kind; no deadline while the process changes them."""
        before = self._numbers[_CHANGES]
        deadline, (job_id, kind) = self._numbers[_DEADLINE], _CULPRIT.unpack_from(self._page, _NAMES)
        is_whole = before % 2 == 0 and before == self._numbers[_CHANGES]
        return deadline if is_whole else _NEVER, _text(job_id), _text(kind)


Main = Callable[[Pulse, Predecessor | None, bool], None]
"""What a process runs, with whether it is the one for suspects."""


def supervise(main: Main, processes: int) -> int:
    """Keep this many processes running until SIGTERM or SIGINT; returns the exit code."""
    parent = _Supervisor(main, processes)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, parent.stop)
    return parent.run()


class _SupervisedProcess:
    def __init__(self, main: Main, *, for_suspects: bool = False) -> None:
        self._main = main
        self.for_suspects = for_suspects
        self._pulse = Pulse()
        self._began = 0.0
        self._signalled = 0.0
        self._predecessor: Predecessor | None = None
        self._killed: Predecessor | None = None
        self._process: Any = None
        self.start(None)

    def start(self, predecessor: Predecessor | None) -> None:
        self._pulse.reset()
        self._predecessor, self._killed = predecessor, None
        self._began = monotonic()
        context = multiprocessing.get_context("fork")
        arguments = (self._main, self._pulse, predecessor, self.for_suspects)
        self._process = context.Process(target=_run, args=arguments)
        self._process.start()

    @property
    def sentinel(self) -> int:
        """Readable when the process has ended."""
        return int(self._process.sentinel)

    @property
    def is_alive(self) -> bool:
        return bool(self._process.is_alive())

    @property
    def is_over(self) -> bool:
        """Whether it ended because no suspects were left; one that cannot start is tried again later."""
        return self.for_suspects and (self.failed_to_start or self._process.exitcode == 0)

    @property
    def suspects_wait(self) -> bool:
        return self._pulse.suspects_wait

    @property
    def failed_to_start(self) -> bool:
        """Whether it ended before it could work."""
        return not self._pulse.is_ready

    def stop(self) -> None:
        """Ask it to stop, again and again: it may not have been ready for the first signal."""
        if monotonic() - self._signalled > _REPEAT:
            self._signalled = monotonic()
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)

    def kill_if_overdue(self) -> None:
        deadline, job_id, kind = self._pulse.read()
        if self._killed is None and monotonic() > deadline:
            reason = f"the process of the job {job_id} ({kind}) was killed: it did not end at its limit"
            _log.error("%s", reason)
            self._killed = Predecessor(self._process.pid, job_id, reason)
            self._process.kill()

    def replace(self) -> None:
        """Start another process in the place of one that is dead."""
        self._process.join()
        code, pid = self._process.exitcode, self._process.pid
        dead = self._killed or Predecessor(pid, "", f"its worker process died with the exit code {code}")
        if self.failed_to_start:  # then it has had no jobs, and not handed over those of its predecessor
            dead = self._predecessor or dead
        _log.error("the worker process %d ended with %s, and is replaced", pid, code)
        if monotonic() - self._began < _PAUSE:
            time.sleep(_PAUSE)
        self.start(dead)


class _Supervisor:
    def __init__(self, main: Main, processes: int) -> None:
        self._main = main
        self._processes = processes
        self._stopping = False
        self._started = False
        self._next_isolation = 0.0

    def stop(self, *_: object) -> None:
        self._stopping = True

    def run(self) -> int:
        children = [_SupervisedProcess(self._main) for _ in range(self._processes)]
        code = 0
        while children:
            wait([child.sentinel for child in children], timeout=_CHECK)
            self._started = self._started or not all(child.failed_to_start for child in children)
            for child in list(children):
                if child.is_alive:
                    child.kill_if_overdue()
                    if self._stopping:
                        child.stop()
                elif child.is_over:
                    children.remove(child)
                elif self._stopping or not self._started:
                    code = code or int(not self._started and not self._stopping)
                    self._stopping = True
                    children.remove(child)
                else:
                    child.replace()
            self._isolate_suspects(children)
        return code

    def _isolate_suspects(self, children: list[_SupervisedProcess]) -> None:
        """Start a process for suspects when some wait and there is none."""
        exists = any(child.for_suspects for child in children)
        wanted = any(child.suspects_wait for child in children) and not self._stopping
        if wanted and not exists and monotonic() > self._next_isolation:
            self._next_isolation = monotonic() + _PAUSE  # in case it cannot start
            children.append(_SupervisedProcess(self._main, for_suspects=True))


def _run(main: Main, pulse: Pulse, predecessor: Predecessor | None, for_suspects: bool) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)
    main(pulse, predecessor, for_suspects)


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


class HardLimits:
    """Keeps the earliest hard limit of a process in its pulse."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._running: dict[Run, float] = {}
        self._earliest = float("inf")

    def begin(self, run: Run, deadline: float) -> None:
        """Have the process killed at a moment (monotonic) unless this attempt is over by then."""
        self._running[run] = deadline
        if deadline < self._earliest:
            self._note(deadline, run.id, run.kind)

    def end(self, run: Run) -> None:
        """No longer; the next beat notes what is the earliest limit then."""
        self._running.pop(run, None)

    def update(self) -> None:
        """Note the earliest limit of the attempts that still run."""
        if self._running:
            first = min(self._running, key=self._running.__getitem__)
            self._note(self._running[first], first.id, first.kind)
        elif self._earliest != float("inf"):
            self._note(float("inf"), "", "")

    def blame(self, run: Run) -> None:
        """Have the process killed for this job, which blocks it, whatever limit is reached first."""
        self._pulse.set_deadline(self._earliest, run.id, run.kind)

    def _note(self, limit: float, job_id: str, kind: str) -> None:
        self._earliest = limit
        self._pulse.set_deadline(limit, job_id, kind)


class LoopWatchdog:
    """Reports a job that blocks the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: HardLimits,
        find: Callable[[asyncio.Task[Any]], Run | None],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._find = find
        self._beat = monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        self._thread_id = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="ephemera-job-watchdog", daemon=True)

    def start(self) -> None:
        """Start to beat and to watch; call it on the loop."""
        self._on_beat()
        self._thread.start()

    def stop(self) -> None:
        """Stop both."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _on_beat(self) -> None:
        self._beat = monotonic()
        self._limits.update()
        self._timer = self._loop.call_later(_BEAT, self._on_beat)

    def _watch(self) -> None:
        reported = 0.0
        while not self._stopped.wait(_BEAT):
            beat = self._beat
            if monotonic() - beat > _BLOCKED and reported != beat:
                reported = beat
                self._report(monotonic() - beat)

    def _report(self, seconds: float) -> None:
        task = asyncio.current_task(self._loop)
        run = None if task is None else self._find(task)
        if run is not None:
            self._limits.blame(run)
        frame = sys._current_frames().get(self._thread_id)
        place = "".join(traceback.format_stack(frame)[-_FRAMES:]) if frame else ""
        who = f"job {run.id} ({run.kind})" if run else "something other than a job"
        _log.error(
            "%s has blocked the event loop of this worker for %.1f s, and with it all its jobs; "
            "run what blocks as a plain function in a step\n%s",
            who,
            seconds,
            place,
        )
