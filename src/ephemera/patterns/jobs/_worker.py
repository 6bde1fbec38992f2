"""A worker: Celery's parent process and its children, each with an event loop, a store and a database.

A child runs one job at a time. Its main thread is Celery's; the job runs on the child's event loop, in a
thread of its own that `ephemera.sync` keeps. The loop goes on between jobs, so connections stay healthy
and any child can be the reaper. Children are forked before they connect to anything, and die with their
parent.

SIGTERM or SIGINT: no job is taken any more; those that run are handed back when their present step has ended,
and go on elsewhere at once. SIGKILL, at any moment, of anything: the jobs go on elsewhere within 10 s.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import mmap
import os
import signal
import socket
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from celery import signals

from ephemera import sync
from ephemera.errors import InvalidDeclaration
from ephemera.patterns.jobs._attempts import Attempt
from ephemera.patterns.jobs._celery_app import celery_app
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._engines import sql_engine
from ephemera.patterns.jobs._reaper import reap

_PR_SET_PDEATHSIG = 1
_log = logging.getLogger("ephemera.jobs")


@dataclass(frozen=True)
class Settings:
    """Where a worker finds everything; `url` and `queue_url` are those of `connect`. It shows no secret."""

    url: str = field(repr=False)
    database_url: str = field(repr=False)
    queue_url: str | None = field(default=None, repr=False)

    @property
    def broker(self) -> str:
        """The server of the queues."""
        return self.queue_url or self.url


def serve(
    jobs: Jobs,
    settings: Settings,
    *,
    queues: tuple[str, ...] = (),
    processes: int = 2,
) -> int:
    """Run a worker for these queues, or all, until it is told to stop; its exit code."""
    if unknown := set(queues) - set(jobs.queues):
        raise InvalidDeclaration(
            ", ".join(sorted(unknown)), "there is no such queue", f"use {', '.join(jobs.queues)}"
        )
    sql_engine(settings.database_url)  # refuses what cannot work, here and not in a child
    stopping = mmap.mmap(-1, 1)  # one byte that all children see
    child = _Child(jobs, settings, stopping)
    app = celery_app(jobs, settings.broker, queues or jobs.queues, child.run)

    def stop(**_: Any) -> None:
        stopping[0] = 1

    signals.worker_process_init.connect(child.start, weak=False)
    signals.worker_process_shutdown.connect(child.stop, weak=False)
    signals.worker_shutting_down.connect(stop, weak=False)
    worker = app.Worker(
        hostname=f"{jobs.name}-{os.getpid()}@{socket.gethostname()}",
        pool="prefork",
        concurrency=processes,
        loglevel=logging.getLogger().getEffectiveLevel(),
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


class _Child:
    """One of Celery's child processes; made in the parent, started in the child."""

    def __init__(self, jobs: Jobs, settings: Settings, stopping: mmap.mmap) -> None:
        self._jobs = jobs
        self._settings = settings
        self._stopping = stopping
        self._store = sync.connect(settings.url, jobs.catalogue, queue_url=settings.queue_url, required=False)
        self._open = AsyncExitStack()
        self._resources: Any = None
        self._attempt: Attempt
        self._reaper: asyncio.Task[None]

    def start(self, **_: Any) -> None:
        """Connect, and be ready to be the reaper."""
        with suppress(OSError, AttributeError):  # elsewhere than on Linux it finishes its job
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        self._store.wait(self._begin())

    def run(self, job_id: str) -> str:
        """Run a job: Celery's task."""
        return self._store.wait(self._attempt.run(job_id))

    def stop(self, **_: Any) -> None:
        """Close what was opened."""
        self._store.wait(self._open.aclose())
        self._store.close()

    async def _begin(self) -> None:
        engine = sql_engine(self._settings.database_url)
        self._open.push_async_callback(engine.dispose)
        live = self._jobs.on(self._store.aio, engine)
        worker = f"{socket.gethostname()}:{os.getpid()}"

        async def resources() -> Any:
            if self._jobs.opened is not None and self._resources is None:
                opening = self._jobs.opened(live.store, engine)
                self._resources = await self._open.enter_async_context(opening)
            return self._resources

        self._attempt = Attempt(live, worker, resources=resources, stopping=lambda: bool(self._stopping[0]))
        self._reaper = asyncio.create_task(reap(live))
        self._open.callback(self._reaper.cancel)
