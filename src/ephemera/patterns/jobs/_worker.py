"""A worker: a parent process and its children, each with an event loop, a store and a database.

With SQL delivery each child runs many jobs (`_sql_worker`), and the parent only watches it (`_supervisor`).
With Celery's, the parent is Celery's and a child runs one job at a time (`_celery_worker`).

*Stopping.* On SIGTERM or SIGINT the worker takes no more jobs; running jobs are released after their current
step and continue elsewhere at once. After SIGKILL of any process, its jobs continue elsewhere within 10 s.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import InvalidDeclaration, MissingExtra
from ephemera.keyspace import Store
from ephemera.patterns.jobs._attempt import AttemptEngines, AttemptLimits, AttemptRunner
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._run_context import MAX_THREADS, JobThreads
from ephemera.patterns.jobs._runtime import JobBackend
from ephemera.sql import sql_engine, verify_at_start

DeliveryName = Literal["sql", "celery"]
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class WorkerSettings:
    """The servers of a worker; `url` and `queue_url` are those of `connect`. Its `repr` shows no secret."""

    url: str = field(repr=False)
    database_url: str = field(repr=False)
    queue_url: str | None = field(default=None, repr=False)

    @property
    def broker_url(self) -> str:
        """The server of the queues."""
        return self.queue_url or self.url


def run_worker(
    jobs: Jobs,
    settings: WorkerSettings,
    *,
    queues: tuple[str, ...] = (),
    delivery: DeliveryName = "sql",
    processes: int | None = None,
    concurrency: int | None = None,
) -> int:
    """Run a worker until a signal stops it; returns its exit code.

    Args:
        jobs: The jobs to run.
        settings: The servers.
        queues: The queues to take jobs from; all, if there are none.
        delivery: The one that the services enqueue with: `sql`, or `celery` for `CeleryDelivery`.
        processes: How many processes run jobs: 1 by default, 2 with Celery.
        concurrency: How many jobs a process runs at once: 100 by default. With Celery it is always 1.

    """
    if unknown := set(queues) - set(jobs.queues):
        raise InvalidDeclaration(
            ", ".join(sorted(unknown)), "there is no such queue", f"use {', '.join(jobs.queues)}"
        )
    verify_at_start(sql_engine(settings.database_url), jobs)  # here rather than in a child
    if delivery == "celery":
        if find_spec("celery") is None:
            raise MissingExtra("workers with Celery delivery need celery", "celery", "celery")
        if concurrency not in (None, 1):
            raise InvalidDeclaration(
                f"concurrency={concurrency}", "a process of Celery runs one job", "use processes="
            )
        from ephemera.patterns.jobs._celery_worker import run_celery_worker  # importing Celery is slow

        return run_celery_worker(jobs, settings, queues or jobs.queues, processes or 2)
    from ephemera.patterns.jobs._sql_worker import run_sql_worker

    return run_sql_worker(jobs, settings, queues or jobs.queues, processes or 1, concurrency or 100)


def worker_name(token: str) -> str:
    """The name of this process in the rows of its jobs: host/token:process.

    The token makes it unique where machines share a host name.
    """
    return f"{socket.gethostname()}/{token}:{os.getpid()}"


def worker_token() -> str:
    """A new token, for all processes of a worker."""
    return uuid4().hex[:8]


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent dies; on Linux only: elsewhere it finishes its jobs first."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it died before that
            os.kill(os.getpid(), signal.SIGKILL)


def control_engine(settings: WorkerSettings, opened: AsyncExitStack, size: int) -> AsyncEngine:
    """Connections that no job uses; whatever sends a statement repeats it if its connection died."""
    engine = sql_engine(settings.database_url, pool_size=size, max_overflow=0, pool_pre_ping=False)
    opened.push_async_callback(engine.dispose)
    return engine


def attempt_runner(
    backend: JobBackend,
    name: str,
    opened: AsyncExitStack,
    *,
    is_stopping: Callable[[], bool],
    engines: AttemptEngines | None = None,
    limits: AttemptLimits | None = None,
    threads: int = MAX_THREADS,
    concurrency: int = 1,
) -> AttemptRunner:
    """What runs the attempts of a process; the worker context is opened by the first, for all of them."""
    asyncio.get_running_loop().set_default_executor(JobThreads(threads))
    of_steps, of_jobs = JobThreads(threads), JobThreads(concurrency)
    for pool in (of_steps, of_jobs):
        opened.callback(pool.shutdown, wait=False)
    context = _WorkerContext(backend.declaration, backend.store, backend.engine, opened)
    return AttemptRunner(
        backend,
        name,
        worker_context=context.get,
        is_stopping=is_stopping,
        engines=engines,
        limits=limits,
        threads=of_steps,
        job_threads=of_jobs,
    )


class _WorkerContext:
    def __init__(self, jobs: Jobs, store: Store, engine: AsyncEngine, opened: AsyncExitStack) -> None:
        self._factory = jobs.context_factory
        self._arguments = (store, engine)
        self._opened = opened
        self._opening = asyncio.Lock()
        self._is_open = False
        self._context: Any = None

    async def get(self) -> Any:
        if self._factory is not None and not self._is_open:
            async with self._opening:
                if not self._is_open:
                    context = self._factory(*self._arguments)
                    self._context = await self._opened.enter_async_context(context)
                    self._is_open = True
        return self._context
