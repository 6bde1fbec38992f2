"""`ephemera worker`: run the jobs of a service, or what a built-in one does besides answering."""

import importlib.util
import os
from typing import Annotated, Any

import typer

from ephemera.cli.command import Command, Url, flag, run
from ephemera.cli.job_flags import DatabaseUrl, JobsArgument, QueueUrl
from ephemera.cli.loading import SYSTEMS, systems

Queues = Annotated[
    list[str], flag("--queue", "A queue to take jobs from; may be given several times. All without it.")
]
Processes = Annotated[int, flag("--processes", "How many jobs to run at once.", min=1, max=1000)]
Level = Annotated[str, flag("--log-level", "From which level on to log: debug, info, warning, error.")]
System = Annotated[
    str | None,
    flag("--system", "A built-in system whose work to do, in place of NAME; its environment configures it."),
]
_LEVELS = ("debug", "info", "warning", "error")


def worker(
    name: JobsArgument = None,
    url: Url = "",
    database_url: DatabaseUrl = "",
    system: System = None,
    queue_url: QueueUrl = None,
    queues: Queues = [],  # noqa: B006 - typer copies it
    processes: Processes = 2,
    log_level: Level = "info",
) -> None:
    """Run jobs until told to stop, or what a built-in system does besides answering.

    SIGTERM or Ctrl-C: no job is taken any more, those that run are handed to other workers after their
    present step, and the command ends. Killed in any other way, its jobs go on elsewhere within seconds.
    Logs are JSON lines on stderr.
    """
    from ephemera.patterns.jobs.worker import Settings, serve
    from ephemera.systems.logs import configure

    if log_level not in _LEVELS:
        raise typer.BadParameter(f"{log_level!r} is none of {', '.join(_LEVELS)}", param_hint="--log-level")
    if (name is None) == (system is None):
        raise typer.BadParameter("give jobs as NAME, or a built-in system as --system", param_hint="NAME")
    configure(log_level)
    if system is not None:
        named = {"URL": url, "DATABASE_URL": database_url, "QUEUE_URL": queue_url or ""}
        _work(system, {f"EPHEMERA_{variable}": value for variable, value in named.items()})
        return
    for option, given in (("--url", url), ("--database-url", database_url)):
        if not given:
            raise typer.BadParameter("jobs need it", param_hint=option)
    settings = Settings(url=url, queue_url=queue_url, database_url=database_url)
    raise typer.Exit(serve(name, settings, queues=tuple(queues), processes=processes))


def _work(system: str, named: dict[str, str]) -> None:
    """Do the work of a built-in system until told to stop."""
    from ephemera.systems.settings import read
    from ephemera.systems.working import until_told

    worker: Any = None
    if system in systems():
        place = f"{SYSTEMS}.{system}.worker"
        worker = importlib.import_module(place) if importlib.util.find_spec(place) else None
    if worker is None:
        raise typer.BadParameter(f"{system!r} is no built-in system with work to do", param_hint="--system")
    run(until_told(worker.working(read(worker.Settings, {**os.environ, **named}))))


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
        ("the events of a built-in system", f"--system scripture {_WHERE}"),
    ),
)
