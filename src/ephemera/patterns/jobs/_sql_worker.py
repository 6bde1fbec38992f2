"""A worker with SQL delivery: processes that each run many jobs on one event loop.

*Claims.* A process claims as many jobs as it has places for, in one statement for each of its queues
(`_claims`). A Redis channel wakes it when a job is enqueued; every second, and more often while Redis is
unavailable, it looks without that, and releases jobs whose lease has expired. Suspects (`_rows`, Crashes)
are left to a process of their own, which runs one at a time.

*Connections.* Claims and leases have two connections of their own, and the records of steps and the outcomes
of attempts three, so that jobs which use up the engine's fifteen cannot make their process lose them.

*A blocked event loop.* A job that computes on the loop, or calls something that blocks, stops all jobs of its
process. A thread notices it after a second, and logs the job and where it is. If that lasts longer than the
lease, the other jobs continue elsewhere; at the job's hard limit the parent kills the process
(`_supervisor`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from time import monotonic

from ephemera.errors import ConnectionFailed, ServerError, StoreClosed
from ephemera.keyspace import connect
from ephemera.patterns.jobs._attempt import AttemptEngines, AttemptRunner
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._delivery import ALL_QUEUES
from ephemera.patterns.jobs._reaper import run_reaper
from ephemera.patterns.jobs._rows import DATABASE_ERRORS
from ephemera.patterns.jobs._run_context import MAX_THREADS
from ephemera.patterns.jobs._runtime import JobBackend
from ephemera.patterns.jobs._supervisor import HardLimits, LoopWatchdog, Predecessor, Pulse, supervise
from ephemera.patterns.jobs._tables import JobRow
from ephemera.patterns.jobs._worker import (
    WorkerSettings,
    attempt_runner,
    control_engine,
    die_with_parent,
    worker_name,
    worker_token,
)
from ephemera.sql import sql_engine

_POLL = 1.0  # seconds after which a process looks for jobs without being woken
_POLL_SOON = 0.1  # seconds, while Redis is unavailable or a limited queue has no place
_GATHER = 0.005  # seconds in which further places become free, when jobs wait for places
_IDLE = 5.0  # seconds after which a process for suspects ends that has none
_CONTROL_POOLS = (2, 3)  # connections for claims and leases, and for outcomes and records of steps
_log = logging.getLogger("ephemera.jobs")


def run_sql_worker(
    jobs: Jobs, settings: WorkerSettings, queues: tuple[str, ...], processes: int, concurrency: int
) -> int:
    """Run a worker with this many processes until a signal stops it; returns its exit code."""
    token, parent = worker_token(), os.getpid()

    def main(pulse: Pulse, predecessor: Predecessor | None, for_suspects: bool) -> None:
        die_with_parent(parent)
        worker = SqlWorker(jobs, settings, queues, concurrency, token, for_suspects=for_suspects)
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(worker.run(pulse, predecessor))

    return supervise(main, processes)


class SqlWorker:
    """One process of a worker."""

    def __init__(
        self,
        jobs: Jobs,
        settings: WorkerSettings,
        queues: Iterable[str],
        concurrency: int,
        token: str,
        *,
        for_suspects: bool,
    ) -> None:
        self._jobs = jobs
        self._settings = settings
        self._queues = list(queues)
        self._concurrency = 1 if for_suspects else concurrency
        self._threads = min(concurrency, MAX_THREADS)
        self._for_suspects = for_suspects
        self._token = token
        self._stopping = False
        self._woken = asyncio.Event()
        self._reload = False
        self._limited: set[str] = set()
        self._predecessor: Predecessor | None = None
        self._last_suspect = monotonic()
        self._running: set[asyncio.Task[str]] = set()

    async def run(self, pulse: Pulse, predecessor: Predecessor | None) -> None:
        """Run jobs until SIGTERM or SIGINT, then release what is still running."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._stop)
        async with AsyncExitStack() as opened:
            limits = HardLimits(pulse)
            backend, attempts = await self._open(opened, limits)
            watchdog = LoopWatchdog(loop, limits, attempts.leases.find)
            opened.callback(watchdog.stop)
            watchdog.start()
            tasks = [asyncio.create_task(self._receive_wakes(backend), name="ephemera-job-wakes")]
            if not self._for_suspects:
                tasks.append(asyncio.create_task(run_reaper(backend), name="ephemera-job-reaper"))
            for task in tasks:
                opened.callback(task.cancel)
            pulse.mark_ready()
            self._predecessor = predecessor
            await self._claim_and_run(backend, attempts, pulse)
            attempts.leases.announce_stop()
            while self._running:
                await asyncio.wait(self._running)

    async def _open(self, opened: AsyncExitStack, limits: HardLimits) -> tuple[JobBackend, AttemptRunner]:
        servers = self._settings
        engine = sql_engine(servers.database_url)
        opened.push_async_callback(engine.dispose)
        engines = AttemptEngines(*(control_engine(servers, opened, size) for size in _CONTROL_POOLS))
        resources = await opened.enter_async_context(self._jobs.open_resources(engine))
        store = await opened.enter_async_context(
            connect(
                servers.url,
                self._jobs.catalogue,
                queue_url=servers.queue_url,
                required=False,
                resources=resources,
            )
        )
        backend = JobBackend(self._jobs, store, engine)
        name = worker_name(self._token)
        runner = attempt_runner(
            backend,
            name,
            opened,
            is_stopping=lambda: self._stopping,
            engines=engines,
            limits=limits,
            threads=self._threads,
            concurrency=self._concurrency,
        )
        return backend, runner

    def _stop(self) -> None:
        self._stopping = True
        self._woken.set()

    async def _claim_and_run(self, backend: JobBackend, attempts: AttemptRunner, pulse: Pulse) -> None:
        """Claim jobs whenever there are places and jobs may be due, until the worker stops."""
        outage = backend.outages["claims"]
        next_look = 0.0  # when expired leases are looked for
        while not self._stopping and not self._is_idle():
            self._woken.clear()
            try:
                if monotonic() >= next_look:
                    next_look = monotonic() + _POLL * random.uniform(0.8, 1.2)
                    await self._release_lost(backend, attempts)
                    pulse.report_suspects(not self._for_suspects and await self._suspects_wait(attempts))
                wait = await self._claim(backend, attempts)
                outage.regain(self, "jobs are claimed again")
            except (*DATABASE_ERRORS, TimeoutError) as problem:
                outage.lose(self, "no jobs are claimed: %s", problem)
                wait = _POLL
            except Exception as problem:  # whatever it is, the next look may succeed
                outage.lose(self, "no jobs are claimed", level=logging.ERROR, exc_info=problem)
                wait = _POLL
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), min(wait, max(0.0, next_look - monotonic())))

    async def _release_lost(self, backend: JobBackend, attempts: AttemptRunner) -> None:
        """Release the jobs of dead processes; those of the predecessor before their leases expire."""
        rows, released, own = attempts.rows, list[JobRow](), worker_name(self._token)
        if (dead := self._predecessor) is not None:
            name = own.rpartition(":")[0] + f":{dead.pid}"
            if dead.culprit:
                released += await rows.release_killed(name, dead.culprit, dead.reason)
            else:
                released += await rows.release_crashed(name, dead.reason)
            self._predecessor = None
        released += await rows.release_expired(self._jobs.lease, own)
        await backend.send_messages(released)

    async def _suspects_wait(self, attempts: AttemptRunner) -> bool:
        settings = await attempts.claims.settings()
        paused = {queue for queue, each in settings.items() if each.paused}
        queues = [queue for queue in self._queues if queue not in paused]
        return await attempts.rows.has_suspects(queues, list(self._jobs.kinds))

    def _is_idle(self) -> bool:
        """Whether a process for suspects has had none for a while."""
        if self._running:
            self._last_suspect = monotonic()
        return self._for_suspects and monotonic() - self._last_suspect > _IDLE

    async def _claim(self, backend: JobBackend, attempts: AttemptRunner) -> float:
        """Claim what there is a place for; returns how long to wait for a wake-up before the next look."""
        reload, self._reload = self._reload, False  # before it is awaited: another wake-up may ask again
        settings = await attempts.claims.settings(reload=reload)
        self._limited = {
            queue for queue, each in settings.items() if each.is_limited and queue in self._queues
        }
        more = False
        random.shuffle(self._queues)  # so that no queue always takes the places of the others
        for queue in self._queues:
            free, claimed = self._concurrency - len(self._running), monotonic()
            if free <= 0:
                return _POLL  # the end of a job wakes it
            rows = await attempts.claims.due(queue, free, suspects=self._for_suspects)
            for row in rows:
                self._start(row, claimed, attempts)
            more = more or len(rows) == free
        if more:
            return _GATHER
        return _POLL_SOON if self._limited or not backend.store.client("queue").up else _POLL

    def _start(self, row: JobRow, claimed: float, attempts: AttemptRunner) -> None:
        task = asyncio.create_task(attempts.run_claimed(row, claimed), name=f"attempt {row.kind} {row.id}")
        self._running.add(task)
        task.add_done_callback(partial(self._ended, row))

    def _ended(self, row: JobRow, task: asyncio.Task[str]) -> None:
        if len(self._running) >= self._concurrency or row.queue in self._limited:
            # Not at once: in a moment others have ended, too, and one statement fills all places.
            asyncio.get_running_loop().call_later(_GATHER, self._woken.set)
        self._running.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            _log.error("the attempt of job %s (%s) broke off", row.id, row.kind, exc_info=problem)

    async def _receive_wakes(self, backend: JobBackend) -> None:
        """Listen to the wake channel, for as long as the store is open."""
        channel, outage = backend.store[self._jobs.wake], backend.outages["wakes"]
        while True:
            try:
                async with backend.store.client("queue").subscribe(channel.name()) as messages:
                    outage.regain(self, "jobs are found by wake-ups again")
                    self._woken.set()  # for what was enqueued before the server confirmed
                    async for message in messages:
                        self._reload = self._reload or message.lost or message.data == ALL_QUEUES.encode()
                        self._woken.set()
                    return  # the store was closed
            except StoreClosed:
                return
            except (ConnectionFailed, ServerError) as problem:
                outage.lose(self, "jobs are found by polling: %s", problem)
            await asyncio.sleep(_POLL)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
