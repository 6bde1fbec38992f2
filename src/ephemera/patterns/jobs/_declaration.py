"""The declaration of a service's jobs: their tables, their queues, and every key that they and Celery use."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Store, check_declaration, fixed, permanent
from ephemera.patterns.jobs._checkpoints import Checkpoints
from ephemera.patterns.jobs._job_definition import Job
from ephemera.patterns.jobs._rows import JobRow
from ephemera.patterns.jobs._run_context import Run
from ephemera.patterns.jobs._runtime import BoundJobs
from ephemera.patterns.jobs._tables import job_tables
from ephemera.patterns.locks import Locks
from ephemera.patterns.progress import Progress

Resources = Callable[[Store, AsyncEngine], AbstractAsyncContextManager[Any]]
Conclude = Callable[[Store, AsyncEngine, JobRow], Awaitable[None]]

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LEADER_LEASE = timedelta(seconds=3)
_MUTEX = 5  # seconds; kombu's own 300 would stop all restoring that long after a crash
_BY_CELERY = permanent(reason="Celery removes each when its job's attempt has ended")


class Jobs:
    """The jobs of a service: `JOBS.on(store, engine)` is where they are enqueued, cancelled and looked up.

    `queues` are Celery's, each a list `celery_queue:{queue}`. `name` is the SQL table's, and begins the
    keys of the queues' bookkeeping. `lease` is how long a job outlives its worker before another takes it.
    `ended` makes the last progress event of a job out of its row, whatever its end was.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        checkpoint: str,
        *,
        queues: Sequence[str],
        progress: Progress[Any] | None = None,
        ended: Callable[[JobRow], Any] | None = None,
        name: str = "jobs",
        metadata: MetaData | None = None,
        lease: timedelta = timedelta(seconds=5),
        checkpoint_life: Fixed = fixed(hours=1),  # noqa: B008 - it is a constant
    ) -> None:
        check_declaration(catalogue, checkpoint, lease=lease)
        _check(checkpoint, name, queues, progress, ended)
        self.name = name
        self.catalogue = catalogue
        self.queues = tuple(queues)
        self.progress = progress
        self.ended = ended
        self.lease = lease
        self.metadata = MetaData() if metadata is None else metadata
        self.tables = job_tables(self.metadata, name)
        self.kinds: dict[str, Job[..., Any]] = {}
        self.opened: Resources | None = None
        self.conclude: Conclude | None = None
        self.checkpoints = catalogue.mapping(
            checkpoint,
            bytes,
            lifetime=fixed(
                milliseconds=checkpoint_life.milliseconds,
                outlives="a step, which renews it; SQL has the rest",
            ),
            # One script writes both, so both are on one server, and in one slot of a cluster.
            role=progress.space.role if progress else "queue",
            hash_tag="job_id",
            purpose="What a job has done so far, for the worker that takes it over",
            saves="repeating the steps that are not recorded in SQL",
            invalidated_by=("the job's end, which leaves its fence",),
            if_lost="the job goes on from its steps in SQL",
        )
        self.queue_lists = catalogue.list(
            "celery_queue:{queue}",
            bytes,
            lifetime=_BY_CELERY,
            role="queue",
            owner="Celery",
            purpose="Messages that name jobs to be run",
            if_lost="jobs that wait are put in it again from SQL, within seconds",
        )
        self.unacked = catalogue.mapping(
            f"{name}:unacked",
            bytes,
            lifetime=_BY_CELERY,
            role="queue",
            owner="Celery",
            purpose="Messages whose jobs are being run",
            if_lost="nothing: a job that loses its worker is found by its lease in SQL",
        )
        self.unacked_index = catalogue.sorted_set(
            f"{name}:unacked_index",
            str,
            lifetime=_BY_CELERY,
            role="queue",
            owner="Celery",
            purpose="When each of these was last confirmed by its worker",
            if_lost="its messages are not restored; SQL is what counts",
        )
        self.unacked_mutex = catalogue.value(
            f"{name}:unacked_mutex",
            str,
            lifetime=fixed(seconds=_MUTEX, outlives="one look for messages to restore"),
            role="queue",
            owner="Celery",
            purpose="One worker at a time restores messages",
            if_lost="two look at once, and restore each message once",
        )
        self.leader = Locks(
            catalogue,
            f"{name}:reaper",
            lease=_LEADER_LEASE,
            purpose="One worker at a time looks for lost jobs",
        )
        catalogue.patterns.append(self)

    def job(
        self, *, queue: str, attempts: int = 5, time_limit: timedelta = timedelta(hours=1)
    ) -> Callable[[Callable[Concatenate[Run, P], Awaitable[R]]], Job[P, R]]:
        """Declare a job: an `async def` that takes a `Run` and the job's arguments.

        It is tried `attempts` times, each for at most `time_limit`, and is `dead` after that.
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

    def resources(self, opened: Resources) -> Resources:
        """Declare what each worker process opens once, for jobs to have as `run.resources`."""
        self.opened = opened
        return opened

    def concluding(self, conclude: Conclude) -> Conclude:
        """Declare what is done when a job has ended, whatever its end was: tell its user, give back a quota.

        The process that ended it calls it after the commit, once, and only logs it when it fails; it is not
        called if that process dies in between.
        """
        self.conclude = conclude
        return conclude

    def queue_key(self, queue: str) -> str:
        """The list that Celery takes a queue's messages from."""
        return self.queue_lists.key(queue=queue)

    def on(self, store: Store, engine: AsyncEngine) -> BoundJobs:
        """The jobs of a store and a database."""
        return BoundJobs(self, store, engine)

    def bind(self, store: Store) -> Checkpoints:
        """The checkpoints of a store."""
        store[self.checkpoints]  # refuses a store without it
        return Checkpoints(self, store)

    def __repr__(self) -> str:
        return f"<Jobs {self.name!r} in {', '.join(self.queues)}: {', '.join(self.kinds) or 'none yet'}>"


def _check(
    checkpoint: str, name: str, queues: Sequence[str], progress: Progress[Any] | None, ended: Any
) -> None:
    if checkpoint.count("{") != 1 or "{job_id}" not in checkpoint:
        raise InvalidDeclaration(checkpoint, "its one field is {job_id}", "as in gen_checkpoint:{job_id}")
    if progress is not None and progress.space.template.fields != ("job_id",):
        raise InvalidDeclaration(
            progress.space.pattern, "the progress of jobs has the one field {job_id}", "rename it"
        )
    if ended is not None and progress is None:
        raise InvalidDeclaration(checkpoint, "`ended` makes progress events", "give progress= as well")
    for each in (name, *queues):
        if not _NAME.fullmatch(each):
            raise InvalidDeclaration(each, "is not a plain name", "use small letters, digits and _")
    if not queues:
        raise InvalidDeclaration(checkpoint, "it has no queues", "as in queues=('generation',)")
