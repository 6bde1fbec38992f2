"""The declaration of a service's jobs: tables, queues, and every key that they and Celery use.

Celery's keys are declared whether or not it is used, because a store chooses the delivery when it is opened.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Store, check_declaration, fixed, permanent
from ephemera.patterns.jobs._delivery import CeleryDelivery
from ephemera.patterns.jobs._enqueue import new_job
from ephemera.patterns.jobs._finished_jobs import Keep, keep_by_state
from ephemera.patterns.jobs._job_definition import Job, Retry, Unique
from ephemera.patterns.jobs._run_context import Run
from ephemera.patterns.jobs._runtime import BoundJobs
from ephemera.patterns.jobs._schedules import Cron, Every, Schedule
from ephemera.patterns.jobs._sync_run import SyncRun
from ephemera.patterns.jobs._tables import JobRow, job_tables
from ephemera.patterns.locks import Locks
from ephemera.patterns.progress import Progress
from ephemera.sql import SqlSchema

ContextFactory = Callable[[Store, AsyncEngine], AbstractAsyncContextManager[Any]]
ResourcesFactory = Callable[[AsyncEngine], AbstractAsyncContextManager[Mapping[Any, object]]]
FinishedCallback = Callable[[Store, AsyncEngine, JobRow], Awaitable[None]]

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_RETRY = Retry()
_LEADER_LEASE = timedelta(seconds=3)
_MUTEX = 5  # seconds; kombu's default of 300 would stop all restoring that long after a crash
_BY_CELERY = permanent(reason="Celery removes each message when its job's attempt has ended")
_CHECKPOINT_LIFETIME = fixed(hours=1)
_DEFAULT_NAME = "jobs"


class JobDecorator(Protocol):
    """What `@JOBS.job(...)` is."""

    @overload
    def __call__(self, function: Callable[Concatenate[Run, P], Awaitable[R]], /) -> Job[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[SyncRun, P], R], /) -> Job[P, R]: ...


class Jobs:
    """The jobs of a service: `store[JOBS]` gives the `BoundJobs` of a store.

    The store is opened with their SQL engine: `connect(url, catalogue, resources={JOBS: engine})`, or with
    `CeleryDelivery(engine)` if Celery carries the jobs to the workers.

    Args:
        catalogue: The catalogue that declares the keys.
        checkpoint: The key pattern of checkpoints; its one field is `{job_id}`.
        queues: The names of the queues; each job belongs to one, and a worker may serve some of them.
        progress: The progress streams of the jobs, with the one field `{job_id}`.
        final_event: Makes the last progress event of a job from its row, however the job ended.
        name: The name of the SQL table, and the prefix of the other tables and of the queues' keys. Give each
            of several `Jobs` its own.
        metadata: The application's own metadata: for foreign keys to the tables, or a PostgreSQL schema.
        lease: How long after its worker's death a job is taken over by another worker.
        checkpoint_lifetime: How long a checkpoint is kept after its last change.
        keep: How long the row of a job that has ended is kept: one period for all states, or a mapping of
            states to periods, in which an absent state is kept forever; None keeps all forever.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        checkpoint: str,
        *,
        queues: Sequence[str],
        progress: Progress[Any] | None = None,
        final_event: Callable[[JobRow], Any] | None = None,
        name: str = _DEFAULT_NAME,
        metadata: MetaData | None = None,
        lease: timedelta = timedelta(seconds=5),
        checkpoint_lifetime: Fixed = _CHECKPOINT_LIFETIME,
        keep: Keep = timedelta(days=30),
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
        self.keep = keep_by_state(name, keep)
        self.kinds: dict[str, Job[..., Any]] = {}
        self.schedules: dict[str, Schedule] = {}
        self.context_factory: ContextFactory | None = None
        self.resources_factory: ResourcesFactory | None = None
        self.finished_callback: FinishedCallback | None = None
        self.sql_schema = SqlSchema("jobs", name, self.tables)
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
        self.wake = catalogue.channel(
            f"{name}:wake",
            str,
            role="queue",
            purpose="Names a queue that has a new job, so that workers look without Celery",
            if_lost="workers find the job when they poll, within a second",
        )
        self.queue_lists = catalogue.list(
            "celery_queue:{queue}" if name == _DEFAULT_NAME else f"{name}:celery_queue:{{queue}}",
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
        self.finished_channel = catalogue.channel(
            f"{name}:finished",
            str,
            role="queue",
            purpose="Names a job that has ended, for those who wait for its result",
            if_lost="they read its row within seconds",
        )
        self.leader = Locks(
            catalogue,
            f"{name}:reaper",
            lease=_LEADER_LEASE,
            purpose="One worker at a time is the reaper of lost jobs",
        )
        catalogue.patterns.append(self)

    def job(
        self,
        *,
        queue: str,
        retry: Retry = _RETRY,
        time_limit: timedelta = timedelta(hours=1),
        name: str | None = None,
        priority: int = 0,
        unique: Unique | None = None,
    ) -> JobDecorator:
        """Declare a job: an `async def` that takes a `Run` and the job's arguments.

        Or a plain function that takes a `SyncRun` and the arguments, and runs in a thread.

        Args:
            queue: The queue of its messages.
            retry: How many attempts it gets, after which errors, and with which delays.
            time_limit: How long one attempt may take.
            name: The name of the kind in SQL, so that the function can be renamed; by default the function's.
            priority: Jobs of a higher priority run before others of their queue.
            unique: Makes a second job the same as one that exists, by its arguments; see `Unique`.

        """
        if queue not in self.queues:
            raise InvalidDeclaration(queue, "there is no such queue", f"use one of {', '.join(self.queues)}")

        def declare(function: Callable[..., Any]) -> Job[..., Any]:
            job: Job[..., Any] = Job(
                function, queue, retry, time_limit, name=name, priority=priority, unique=unique
            )
            if job.kind in self.kinds:
                advice = "a job's name is its function's, unless you give name="
                raise InvalidDeclaration(job.kind, "it is declared twice", advice)
            self.kinds[job.kind] = job
            return job

        return cast("JobDecorator", declare)

    def schedule(
        self, name: str, when: Cron | Every, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Schedule:
        """Declare that a job is enqueued on a schedule, with these arguments.

        Args:
            name: The name of the schedule in SQL, unique among the schedules of these jobs.
            when: A `Cron` or an `Every`.
            job: The job, or `job.options(priority=...)`. With `unique=Unique()` no second one is enqueued
                while one is open.
            args: The job's arguments.
            kwargs: More of them.

        """
        if name in self.schedules:
            raise InvalidDeclaration(name, "the schedule is declared twice", "give each a name of its own")
        if self.kinds.get(job.kind) is not job.declared:
            raise InvalidDeclaration(job.kind, "is not one of these jobs", f"{self!r}")
        if job.enqueue_options.job_id is not None:
            raise InvalidDeclaration(name, "its jobs cannot all have one id", "leave job_id= out")
        if job.enqueue_options.at is not None:
            raise InvalidDeclaration(name, "its jobs cannot all wait for one moment", "leave at= out")
        made = self.schedules[name] = Schedule(name, when, job, new_job(job, args, kwargs))
        return made

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
    async def open_resources(
        self, delivery: AsyncEngine | CeleryDelivery
    ) -> AsyncIterator[dict[Any, object]]:
        """The `resources=` of a store with these jobs: their delivery, and those of `@JOBS.store_resources`.

        Workers and `ephemera jobs` open their stores with it; a service may do the same.
        """
        if self.resources_factory is None:
            yield {self: delivery}
            return
        engine = delivery.engine if isinstance(delivery, CeleryDelivery) else delivery
        async with self.resources_factory(engine) as others:
            yield {**others, self: delivery}

    def on_finished(self, callback: FinishedCallback) -> FinishedCallback:
        """Declare what is done when a job has ended, however it ended: notify its user, refund a quota.

        It is called at least once for each end, after the commit: by the process that ended the job, and if
        that dies or the call fails, again by a worker. So calling it twice must do no harm. A call may take
        25 seconds.
        """
        self.finished_callback = callback
        return callback

    def queue_key(self, queue: str) -> str:
        """The key of a queue's list; Celery's other priorities have lists with a suffix."""
        return self.queue_lists.key(queue=queue)

    def bind(self, store: Store) -> BoundJobs:
        """The jobs of a store that has their catalogue, and their engine among its resources."""
        store[self.checkpoints]  # refuses a store without the catalogue
        needed = "an AsyncEngine, or CeleryDelivery(engine)"
        return BoundJobs(self, store, store.resource(self, needed, (AsyncEngine, CeleryDelivery)))

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
