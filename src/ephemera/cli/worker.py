"""`ephemera worker`: run the jobs of a service."""

from typing import Annotated

import typer

from ephemera.cli.command import Command, Url, flag
from ephemera.cli.job_flags import DatabaseUrl, JobsArgument, QueueUrl

Queues = Annotated[
    list[str], flag("--queue", "A queue to take jobs from; may be given several times. All without it.")
]
Processes = Annotated[int, flag("--processes", "How many jobs to run at once.", min=1, max=1000)]
Level = Annotated[str, flag("--log-level", "From which level on to log: debug, info, warning, error.")]
_LEVELS = ("debug", "info", "warning", "error")


def worker(
    name: JobsArgument,
    url: Url,
    database_url: DatabaseUrl,
    queue_url: QueueUrl = None,
    queues: Queues = [],  # noqa: B006 - typer copies it
    processes: Processes = 2,
    log_level: Level = "info",
) -> None:
    """Run jobs until told to stop.

    SIGTERM or Ctrl-C: no job is taken any more, those that run are handed to other workers after their
    present step, and the command ends. Killed in any other way, its jobs go on elsewhere within seconds.
    Logs are JSON lines on stderr.
    """
    from ephemera.patterns.jobs.worker import Settings, serve
    from ephemera.systems.logs import configure

    if log_level not in _LEVELS:
        raise typer.BadParameter(f"{log_level!r} is none of {', '.join(_LEVELS)}", param_hint="--log-level")
    configure(log_level)
    settings = Settings(url=url, queue_url=queue_url, database_url=database_url)
    raise typer.Exit(serve(name, settings, queues=tuple(queues), processes=processes))


_WHERE = "--url redis://cache.internal --database-url postgresql://db.internal/service"
COMMAND = Command(
    "worker",
    worker,
    examples=(
        ("all queues, two jobs at a time", f"myservice.jobs:JOBS {_WHERE}"),
        (
            "one queue, from a server of its own",
            f"myservice.jobs:JOBS {_WHERE} --queue-url redis://queue.internal --queue work --processes 8",
        ),
    ),
)
