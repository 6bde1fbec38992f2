"""The declaration of a service's jobs: tables, queues, and every key that they and Celery use."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Store, check_declaration, fixed, permanent
from ephemera.patterns.jobs._job_definition import Job
from ephemera.patterns.jobs._rows import JobRow, job_tables
from ephemera.patterns.jobs._run_context import Run
from ephemera.patterns.jobs._runtime import BoundJobs
from ephemera.patterns.locks import Locks
from ephemera.patterns.progress import Progress

ContextFactory = Callable[[Store, AsyncEngine], AbstractAsyncContextManager[Any]]
ResourcesFactory = Callable[[AsyncEngine], AbstractAsyncContextManager[Mapping[Any, object]]]
FinishedCallback = Callable[[Store, AsyncEngine, JobRow], Awaitable[None]]

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LEADER_LEASE = timedelta(seconds=3)
_MUTEX = 5  # seconds; kombu's default of 300 would stop all restoring that long after a crash
_BY_CELERY = permanent(reason="Celery removes each message when its job's attempt has ended")
_CHECKPOINT_LIFETIME = fixed(hours=1)


class Jobs:
    """The jobs of a service: `store[JOBS]` gives the `BoundJobs` of a store.

    The store is opened with their SQL engine: `connect(url, catalogue, resources={JOBS: engine})`.

    Args:
        catalogue: Where the keys are declaration.
        checkpoint: The key pattern of checkpoints; its one field is `{job_id}`.
        queues: Celery's queues, each a list `celery_queue:{queue}`.
        progress: The progress streams of the jobs, with the one field `{job_id}`.
        final_event: Makes the last progress event of a job from its row, however the job ended.
        name: The name of the SQL table, and the prefix of the keys of the queues' bookkeeping.
        metadata: The application's own metadata, so that its migrations include the tables.
        lease: How long after its worker's death a job is taken over by another worker.
        checkpoint_lifetime: How long a checkpoint is kept after its last change.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        checkpoint: str,
        *,
        queues: Sequence[str],
        progress: Progress[Any] | None = None,
        final_event: Callable[[JobRow], Any] | None = None,
        name: str = "jobs",
        metadata: MetaData | None = None,
        lease: timedelta = timedelta(seconds=5),
        checkpoint_lifetime: Fixed = _CHECKPOINT_LIFETIME,
    ) -> None:
        check_declaration(catalogue, checkpoint, lease=lease)
        _check(checkpoint, name, queues, progress, final_event)
        self.name = name
        self.catalogue = catalogue
        self.queues = tuple(queues)
        self.progress = progress
        self.final_event = final_event
        self.lease = lease
        self.metadata = MetaData() if metadata is None else metadata
        self.tables = job_tables(self.metadata, name)
        self.kinds: dict[str, Job[..., Any]] = {}
        self.context_factory: ContextFactory | None = None
        self.resources_factory: ResourcesFactory | None = None
        self.finished_callback: FinishedCallback | None = None
        self.checkpoints = catalogue.mapping(
            checkpoint,
            bytes,
            lifetime=fixed(
                milliseconds=checkpoint_lifetime.milliseconds,
                outlives="a step, which renews it; SQL records the rest",
            ),
            # One script writes both, so both are on one server, and in one slot of a cluster.
            role=progress.keyspace.role if progress else "queue",
            hash_tag="job_id",
            purpose="What a job has done so far, for a worker that takes it over",
            saves="repeating the steps that are not recorded in SQL",
            invalidated_by=("the job's end, which leaves its fence",),
            if_lost="the job continues from its steps in SQL",
        )
        self.queue_lists = catalogue.list(
            "celery_queue:{queue}",
            bytes,
            lifetime=_BY_CELERY,
            role="queue",
            owner="Celery",
            purpose="Messages that name jobs to run",
            if_lost="messages of waiting jobs are sent again from SQL, within seconds",
        )
        self.unacked = catalogue.mapping(
            f"{name}:unacked",
            bytes,
            lifetime=_BY_CELERY,
            role="queue",
            owner="Celery",
            purpose="Messages whose jobs are running",
            if_lost="nothing: a job that loses its worker is found by its lease in SQL",
        )
        self.unacked_index = catalogue.sorted_set(
            f"{name}:unacked_index",
            str,
            lifetime=_BY_CELERY,
            role="queue",
            owner="Celery",
            purpose="When a worker last renewed each of these messages",
            if_lost="messages are not restored by Celery; the reaper sends them again from SQL",
        )
        self.unacked_mutex = catalogue.value(
            f"{name}:unacked_mutex",
            str,
            lifetime=fixed(seconds=_MUTEX, outlives="one sweep for messages to restore"),
            role="queue",
            owner="Celery",
            purpose="One worker at a time restores messages",
            if_lost="two workers sweep at once, and restore each message once",
        )
        self.leader = Locks(
            catalogue,
            f"{name}:reaper",
            lease=_LEADER_LEASE,
            purpose="One worker at a time is the reaper of lost jobs",
        )
        catalogue.patterns.append(self)

    def job(
        self, *, queue: str, attempts: int = 5, time_limit: timedelta = timedelta(hours=1)
    ) -> Callable[[Callable[Concatenate[Run, P], Awaitable[R]]], Job[P, R]]:
        """Declare a job: an `async def` that takes a `Run` and the job's arguments.

        It gets `attempts` attempts of at most `time_limit` each, and is `dead` after the last one.
        """
        if queue not in self.queues:
            raise InvalidDeclaration(queue, "there is no such queue", f"use one of {', '.join(self.queues)}")

        def declare(function: Callable[Concatenate[Run, P], Awaitable[R]]) -> Job[P, R]:
            job: Job[P, R] = Job(function, queue, attempts, time_limit)
            if job.kind in self.kinds:
                raise InvalidDeclaration(job.kind, "it is declared twice", "a job's name is its function's")
            self.kinds[job.kind] = job
            return job

        return declare

    def worker_context(self, factory: ContextFactory) -> ContextFactory:
        """Declare what each worker process opens once and jobs get as `run.worker_context`.

        The factory takes the worker's store and engine and returns an async context manager.
        """
        self.context_factory = factory
        return factory

    def store_resources(self, factory: ResourcesFactory) -> ResourcesFactory:
        """Declare the `resources=` that other declarations of the catalogue need in a worker's store.

        The factory takes the engine and returns an async context manager of a mapping, as in
        `{USAGE: UsageTable(engine)}`. The engine of the jobs themselves need not be in it.
        """
        self.resources_factory = factory
        return factory

    @asynccontextmanager
    async def open_resources(self, engine: AsyncEngine) -> AsyncIterator[dict[Any, object]]:
        """The `resources=` of a store with these jobs: the engine, and those of `@JOBS.store_resources`.

        Workers and `ephemera jobs` open their stores with it; a service may do the same.
        """
        if self.resources_factory is None:
            yield {self: engine}
            return
        async with self.resources_factory(engine) as others:
            yield {**others, self: engine}

    def on_finished(self, callback: FinishedCallback) -> FinishedCallback:
        """Declare what is done when a job has ended, however it ended: notify its user, refund a quota.

        The process that ended the job calls it once, after the commit, and only logs its failure. It is not
        called if that process dies in between.
        """
        self.finished_callback = callback
        return callback

    def queue_key(self, queue: str) -> str:
        """The key of a queue's list."""
        return self.queue_lists.key(queue=queue)

    def bind(self, store: Store) -> BoundJobs:
        """The jobs of a store that has their catalogue, and their engine among its resources."""
        store[self.checkpoints]  # refuses a store without the catalogue
        return BoundJobs(self, store, store.resource(self, "an AsyncEngine", AsyncEngine))

    def __repr__(self) -> str:
        return f"<Jobs {self.name!r} in {', '.join(self.queues)}: {', '.join(self.kinds) or 'no jobs yet'}>"


def _check(
    checkpoint: str, name: str, queues: Sequence[str], progress: Progress[Any] | None, final_event: Any
) -> None:
    if checkpoint.count("{") != 1 or "{job_id}" not in checkpoint:
        raise InvalidDeclaration(checkpoint, "its one field is {job_id}", "as in gen_checkpoint:{job_id}")
    if progress is not None and progress.keyspace.template.fields != ("job_id",):
        raise InvalidDeclaration(
            progress.keyspace.pattern, "the progress of jobs has the one field {job_id}", "rename it"
        )
    if final_event is not None and progress is None:
        raise InvalidDeclaration(checkpoint, "`final_event` makes progress events", "pass progress= as well")
    for each in (name, *queues):
        if not _NAME.fullmatch(each):
            raise InvalidDeclaration(each, "is not a plain name", "use lower-case letters, digits and _")
    if not queues:
        raise InvalidDeclaration(checkpoint, "it has no queues", "as in queues=('generation',)")
