"""`ephemera worker`: run the jobs of a service, or the worker that an installed package registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ephemera.cli import _plugins
from ephemera.cli._catalogue_lookup import load_jobs
from ephemera.cli._command import Command, Url, flag
from ephemera.cli._job_flags import DatabaseUrl, QueueUrl
from ephemera.cli._logs import configure_logs

if TYPE_CHECKING:
    from ephemera.patterns.jobs import Jobs

Name = Annotated[
    str,
    typer.Argument(
        help="The jobs as module:object, or the name of a registered worker.",
        metavar="NAME",
        envvar="EPHEMERA_JOBS",
    ),
]

_PROCESSES = 2
Queues = Annotated[
    list[str] | None,
    flag("--queue", "A queue to take jobs from; repeatable. Default: all queues."),
]
Processes = Annotated[
    int | None,
    flag("--processes", "How many jobs to run at once.", min=1, max=1000, show_default=str(_PROCESSES)),
]
Level = Annotated[str, flag("--log-level", "The lowest level to log: debug, info, warning, error.")]
_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What the command line gives a worker; empty or None where a flag was not given."""

    url: str = ""
    database_url: str = ""
    queue_url: str | None = None
    queues: tuple[str, ...] = ()
    processes: int | None = None


RunWorker = Callable[[WorkerOptions], int]
"""What `ephemera.workers` registers: runs until SIGTERM or SIGINT and returns the exit code."""


def worker(
    name: Name,
    url: Url = "",
    database_url: DatabaseUrl = "",
    queue_url: QueueUrl = None,
    queues: Queues = None,
    processes: Processes = None,
    log_level: Level = "info",
) -> None:
    """Run jobs, or the worker of an installed service, until SIGTERM or Ctrl-C.

    On SIGTERM or Ctrl-C no new job is taken, running jobs are handed to other workers after their
    current step, and the command exits. If it is killed in any other way, its jobs resume elsewhere within
    seconds. Logs are JSON lines on stderr.
    """
    if log_level not in _LEVELS:
        raise typer.BadParameter(
            f"{log_level!r} is not one of {', '.join(_LEVELS)}", param_hint="--log-level"
        )
    configure_logs(log_level)
    options = WorkerOptions(url, database_url, queue_url, tuple(queues or ()), processes)
    workers = _plugins.registered(_plugins.WORKERS)
    if name in workers:
        run: RunWorker = _plugins.load(workers[name])
        raise typer.Exit(run(options))
    if ":" not in name and name not in _plugins.registered(_plugins.JOBS):
        raise typer.BadParameter(
            f"no installed package registers {name!r} (registered: {', '.join(workers) or 'none'}); "
            "name your own jobs as module:object, as in myservice.jobs:JOBS",
            param_hint="NAME",
        )
    raise typer.Exit(run_jobs(load_jobs(name), options))


def run_jobs(jobs: Jobs, options: WorkerOptions) -> int:
    """Run jobs with Celery until the process is stopped; returns the exit code."""
    for option, given in (("--url", options.url), ("--database-url", options.database_url)):
        if not given:
            raise typer.BadParameter("jobs need it", param_hint=option)
    from ephemera.patterns.jobs import WorkerSettings, run_worker

    settings = WorkerSettings(url=options.url, queue_url=options.queue_url, database_url=options.database_url)
    return run_worker(jobs, settings, queues=options.queues, processes=options.processes or _PROCESSES)


_SERVERS = "--url redis://cache.internal --database-url postgresql://db.internal/service"
COMMAND = Command(
    "worker",
    worker,
    examples=(
        ("all queues, two jobs at a time", f"myservice.jobs:JOBS {_SERVERS}"),
        (
            "one queue, on a server of its own",
            f"myservice.jobs:JOBS {_SERVERS} --queue-url redis://queue.internal --queue work --processes 8",
        ),
        ("the worker of an installed service", f"slides {_SERVERS} --queue generation --processes 8"),
    ),
)
