"""The flags that the commands of jobs share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ephemera.cli.command import flag
from ephemera.cli.loading import load_jobs

JobsArgument = Annotated[
    Any,
    typer.Argument(
        help="The jobs as module:object, or the name of a built-in system.",
        metavar="NAME",
        envvar="EPHEMERA_JOBS",
        parser=load_jobs,
    ),
]
DatabaseUrl = Annotated[str, flag("--database-url", "PostgreSQL: postgresql://user:password@host/database.")]
QueueUrl = Annotated[
    str | None, flag("--queue-url", "The server of the queues, where it is not that of --url.")
]


@contextmanager
def database_errors() -> Iterator[None]:
    """Tell a database that cannot be used in one line, without what was sent to it."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        problem = str(error.orig).strip().partition("\n")[0]
        advice = "is --database-url the right one, and are the tables there?"
        typer.echo(f"ephemera: the database refused: {problem}; {advice}", err=True)
        raise typer.Exit(1) from None
