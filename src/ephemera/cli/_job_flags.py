"""The flags that the commands of jobs share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ephemera.cli._catalogue_lookup import load_jobs
from ephemera.cli._command import flag

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
        advice = "is --database-url the right one, and are the tables there?"
        typer.echo(f"ephemera: the database refused: {refusal(error)}; {advice}", err=True)
        raise typer.Exit(1) from None


def refusal(error: Any) -> str:
    """What a database said, in one line; never a part of the URL that may be a password."""
    said = str(error.orig).strip().partition("\n")[0]
    # A password with an @ that is not written as %40 ends up in what the driver takes for the host.
    return type(error.orig).__name__ if "@" in said else said


def address(url: str) -> str:
    """Where a database is by its URL: host and port, without who signs in and with what."""
    where = url.partition("://")[2].partition("/")[0].partition("?")[0].rpartition("@")[2]
    host, _, port = where.rpartition(":") if where.rpartition(":")[2].isdigit() else (where, "", "5432")
    return f"{host}:{port}" if host else "a local socket"
