"""`ephemera worker slides|scripture|feed`: what these services do besides answering requests.

A service is configured by its environment; the flags of the command override the variables of the same
names. Mistakes in either are reported before anything starts.
"""

from __future__ import annotations

import logging
import os
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol, TypeVar

import typer
from sqlalchemy.exc import OperationalError

from ephemera.cli import WorkerOptions, run, run_jobs
from ephemera.patterns.jobs import Jobs, sql_engine
from ephemera.sql import migrate
from ephemera_services import feed, scripture, slides
from ephemera_services.runtime import SHUTDOWN_TIMEOUT, ServiceSettings, read_settings, run_until_signalled

S = TypeVar("S", bound=ServiceSettings)
S_contra = TypeVar("S_contra", bound=ServiceSettings, contravariant=True)


logger = logging.getLogger(__name__)

__all__ = ["run_feed", "run_scripture", "run_slides"]


class _OpenWorker(Protocol[S_contra]):
    def __call__(self, settings: S_contra, /) -> AbstractAsyncContextManager[None]: ...


def run_slides(options: WorkerOptions) -> int:
    """Run the jobs of slides: those of the named queues, or else all but the reading of documents.

    Documents come from outside and may be costly, so a worker reads them only where it is asked to.
    """
    _settings(slides.Settings, options)  # so that a mistake is reported now, not by the first job
    if options.database_url:
        run(_migrate(slides.JOBS, options.database_url))
    queues = options.queues or slides.DEFAULT_QUEUES
    return run_jobs(slides.JOBS, replace(options, queues=queues, delivery="celery"))


def run_scripture(options: WorkerOptions) -> int:
    """Consume the events of scripture."""
    return _run_until_signalled(scripture.open_worker, scripture.Settings, options)


def run_feed(options: WorkerOptions) -> int:
    """Plan and build the feeds."""
    return _run_until_signalled(feed.open_worker, feed.Settings, options)


def _run_until_signalled(open_worker: _OpenWorker[S], settings_type: type[S], options: WorkerOptions) -> int:
    settings = _settings(settings_type, options)
    flags = ("queues", "processes", "concurrency", "delivery")
    for option in flags:
        if getattr(options, option):
            hint = "--queue" if option == "queues" else f"--{option}"
            raise typer.BadParameter(f"{settings.service} has no jobs", param_hint=hint)
    run(run_until_signalled(open_worker(settings), timeout=SHUTDOWN_TIMEOUT))
    return 0


async def _migrate(jobs: Jobs, database_url: str) -> None:
    """Create the tables of jobs, as the service does, whichever starts first."""
    engine = sql_engine(database_url)
    try:
        await migrate(engine, jobs)
    except OperationalError as problem:  # the worker waits for the database
        logger.warning("the tables of jobs are not migrated: %s", problem)
    finally:
        await engine.dispose()


def _settings(settings_type: type[S], options: WorkerOptions) -> S:
    flags = {"URL": options.url, "DATABASE_URL": options.database_url, "QUEUE_URL": options.queue_url or ""}
    return read_settings(
        settings_type, {**os.environ, **{f"EPHEMERA_{name}": value for name, value in flags.items()}}
    )
