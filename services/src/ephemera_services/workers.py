"""`ephemera worker slides|scripture|feed`: what these services do besides answering requests.

A service is configured by its environment; the flags of the command stand in for the variables of the same
names. Mistakes in either are reported before anything starts.
"""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

import typer

from ephemera.cli import WorkerOptions, run, run_jobs
from ephemera_services import feed, scripture, slides
from ephemera_services.runtime import SHUTDOWN_TIMEOUT, ServiceSettings, read_settings, run_until_signalled

S = TypeVar("S", bound=ServiceSettings)
S_contra = TypeVar("S_contra", bound=ServiceSettings, contravariant=True)


__all__ = ["run_feed", "run_scripture", "run_slides"]


class _OpenWorker(Protocol[S_contra]):
    def __call__(self, settings: S_contra, /) -> AbstractAsyncContextManager[None]: ...


def run_slides(options: WorkerOptions) -> int:
    """Run the jobs of slides: all queues, or those that are named."""
    _settings(slides.Settings, options)  # so that a mistake is reported now, not by the first job
    return run_jobs(slides.JOBS, options)


def run_scripture(options: WorkerOptions) -> int:
    """Consume the events of scripture."""
    return _run_until_signalled(scripture.open_worker, scripture.Settings, options)


def run_feed(options: WorkerOptions) -> int:
    """Plan and build the feeds."""
    return _run_until_signalled(feed.open_worker, feed.Settings, options)


def _run_until_signalled(open_worker: _OpenWorker[S], settings_type: type[S], options: WorkerOptions) -> int:
    settings = _settings(settings_type, options)
    for option, given in (("--queue", options.queues), ("--processes", options.processes)):
        if given:
            raise typer.BadParameter(f"{settings.service} has no jobs", param_hint=option)
    run(run_until_signalled(open_worker(settings), timeout=SHUTDOWN_TIMEOUT))
    return 0


def _settings(settings_type: type[S], options: WorkerOptions) -> S:
    flags = {"URL": options.url, "DATABASE_URL": options.database_url, "QUEUE_URL": options.queue_url or ""}
    return read_settings(
        settings_type, {**os.environ, **{f"EPHEMERA_{name}": value for name, value in flags.items()}}
    )
