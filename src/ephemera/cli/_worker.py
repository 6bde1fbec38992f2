"""`ephemera worker`: run the jobs of a service, or the worker that an installed package registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
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

Queues = Annotated[
    list[str] | None,
    flag("--queue", "A queue to take jobs from; repeatable. Default: all queues."),
]
Processes = Annotated[
    int | None,
    flag("--processes", "How many processes run jobs.", min=1, max=1000, show_default="1; 2 with Celery"),
]
Concurrency = Annotated[
    int | None,
    flag(
        "--concurrency",
        "How many jobs a process runs at once, with SQL delivery.",
        min=1,
        max=10_000,
        show_default="100",
    ),
]
Delivery = Annotated[
    str | None,
    flag("--delivery", "How jobs are delivered: sql, or celery if the service uses it.", show_default="sql"),
]
Development = Annotated[
    bool,
    flag("--development", "Without --database-url, start an embedded PostgreSQL; never in production."),
]
Data = Annotated[
    Path,
    flag("--data", "The folder in which the embedded PostgreSQL keeps its data.", file_okay=False),
]
_DATA = Path(".ephemera")
_DELIVERIES = ("sql", "celery")
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
    concurrency: int | None = None
    delivery: str | None = None
    development: bool = False
    data: Path = _DATA


RunWorker = Callable[[WorkerOptions], int]
"""What `ephemera.workers` registers: runs until SIGTERM or SIGINT and returns the exit code."""


def worker(
    name: Name,
    url: Url = "",
    database_url: DatabaseUrl = "",
    queue_url: QueueUrl = None,
    queues: Queues = None,
    processes: Processes = None,
    concurrency: Concurrency = None,
    delivery: Delivery = None,
    development: Development = False,
    data: Data = _DATA,
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
    if delivery not in (None, *_DELIVERIES):
        raise typer.BadParameter(
            f"{delivery!r} is not one of {', '.join(_DELIVERIES)}", param_hint="--delivery"
        )
    if delivery == "celery" and concurrency not in (None, 1):
        raise typer.BadParameter(
            "Celery runs one job in a process; use --processes", param_hint="--concurrency"
        )
    configure_logs(log_level)
    options = WorkerOptions(
        url,
        database_url,
        queue_url,
        tuple(queues or ()),
        processes,
        concurrency,
        delivery,
        development,
        data,
    )
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
    """Run jobs until the process is stopped; returns the exit code."""
    if not options.url:
        raise typer.BadParameter("jobs need it", param_hint="--url")
    if options.database_url:
        return _run_jobs(jobs, options)
    if not options.development:
        advice = "jobs need it; in development, --development starts an embedded PostgreSQL instead"
        raise typer.BadParameter(advice, param_hint="--database-url")
    from ephemera.cli._development_database import development_database

    with development_database(jobs, options.data) as url:
        return _run_jobs(jobs, replace(options, database_url=url))


def _run_jobs(jobs: Jobs, options: WorkerOptions) -> int:
    from ephemera.patterns.jobs import WorkerSettings, run_worker

    settings = WorkerSettings(url=options.url, queue_url=options.queue_url, database_url=options.database_url)
    return run_worker(
        jobs,
        settings,
        queues=options.queues,
        delivery="celery" if options.delivery == "celery" else "sql",
        processes=options.processes,
        concurrency=options.concurrency,
    )


_SERVERS = "--url redis://cache.internal --database-url postgresql://db.internal/service"
COMMAND = Command(
    "worker",
    worker,
    examples=(
        ("all queues, up to 200 jobs at a time", f"myservice.jobs:JOBS {_SERVERS} --concurrency 200"),
        (
            "one queue, on a server of its own",
            f"myservice.jobs:JOBS {_SERVERS} --queue-url redis://queue.internal --queue work --processes 4",
        ),
        ("jobs that Celery delivers", f"myservice.jobs:JOBS {_SERVERS} --delivery celery --processes 8"),
        ("without a PostgreSQL, in development", "myservice.jobs:JOBS --url redis://localhost --development"),
        ("the worker of an installed service", f"slides {_SERVERS} --queue generation --processes 8"),
    ),
)
