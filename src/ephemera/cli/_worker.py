"""`ephemera worker`: run the jobs of a service, or what a built-in one does besides answering."""

import importlib.util
import os
from typing import Annotated, Any

import typer

from ephemera.cli._catalogue_lookup import SYSTEMS, load_jobs, systems
from ephemera.cli._command import Command, Url, flag, run
from ephemera.cli._job_flags import DatabaseUrl, QueueUrl
from ephemera.patterns.jobs import Jobs

Name = Annotated[
    str | None,
    typer.Argument(
        help="The jobs as module:object, or the name of a built-in system.",
        metavar="NAME",
        envvar="EPHEMERA_JOBS",
    ),
]

_PROCESSES = 2
Queues = Annotated[
    list[str], flag("--queue", "A queue to take jobs from; may be given several times. All without it.")
]
Processes = Annotated[
    int | None,
    flag("--processes", "How many jobs to run at once.", min=1, max=1000, show_default=str(_PROCESSES)),
]
Level = Annotated[str, flag("--log-level", "From which level on to log: debug, info, warning, error.")]
System = Annotated[
    str | None,
    flag("--system", "A built-in system whose work to do, in place of NAME; its environment configures it."),
]
_LEVELS = ("debug", "info", "warning", "error")


def worker(
    name: Name = None,
    url: Url = "",
    database_url: DatabaseUrl = "",
    system: System = None,
    queue_url: QueueUrl = None,
    queues: Queues = [],  # noqa: B006 - typer copies it
    processes: Processes = None,
    log_level: Level = "info",
) -> None:
    """Run jobs until told to stop, or what a built-in system does besides answering.

    SIGTERM or Ctrl-C: no job is taken any more, those that run are handed to other workers after their
    present step, and the command ends. Killed in any other way, its jobs go on elsewhere within seconds.
    Logs are JSON lines on stderr.
    """
    from ephemera_services.runtime import configure_logging

    if log_level not in _LEVELS:
        raise typer.BadParameter(f"{log_level!r} is none of {', '.join(_LEVELS)}", param_hint="--log-level")
    if (name is None) == (system is None):
        both = "" if name is None else ", not both"
        problem = f"give jobs as NAME, or a built-in system as --system{both}"
        raise typer.BadParameter(problem, param_hint="NAME / --system")
    configure_logging(log_level)
    jobs: Jobs | None = None
    if name is not None and name not in systems():
        jobs = load_jobs(name)
    else:
        named = {"URL": url, "DATABASE_URL": database_url, "QUEUE_URL": queue_url or ""}
        given = {f"EPHEMERA_{variable}": value for variable, value in named.items()}
        work, settings = _of_system(system or name or "", given)
        jobs = getattr(work, "JOBS", None)
        if jobs is None:
            _until_told(work, settings, queues, processes)
            return
    for option, place in (("--url", url), ("--database-url", database_url)):
        if not place:
            raise typer.BadParameter("jobs need it", param_hint=option)
    from ephemera.patterns.jobs._worker import Settings, serve

    places = Settings(url=url, queue_url=queue_url, database_url=database_url)
    raise typer.Exit(serve(jobs, places, queues=tuple(queues), processes=processes or _PROCESSES))


def _of_system(system: str, named: dict[str, str]) -> tuple[Any, Any]:
    """The module of a built-in system's work, and its settings: what is wrong with them is told at once."""
    from ephemera_services.runtime import read_settings

    place = f"{SYSTEMS}.{system}.worker"
    if system not in systems() or importlib.util.find_spec(place) is None:
        raise typer.BadParameter(f"{system!r} is no built-in system with work to do", param_hint="--system")
    work: Any = importlib.import_module(place)
    return work, read_settings(work.Settings, {**os.environ, **named})


def _until_told(work: Any, settings: Any, queues: list[str], processes: int | None) -> None:
    """Do the work of a system without jobs until told to stop."""
    from ephemera_services.runtime import SHUTDOWN_TIMEOUT, run_until_signalled

    for option, given in (("--queue", queues), ("--processes", processes)):
        if given:
            raise typer.BadParameter(f"{settings.service} has no jobs", param_hint=option)
    run(run_until_signalled(work.open_worker(settings), timeout=SHUTDOWN_TIMEOUT))


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
        ("one queue of a built-in system", f"--system slides {_WHERE} --queue generation --processes 8"),
    ),
)
