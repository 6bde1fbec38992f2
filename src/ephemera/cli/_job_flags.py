"""Options shared by the commands for jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ephemera.cli._catalogue_lookup import load_jobs
from ephemera.cli._command import flag

JobsArgument = Annotated[
    Any,
    typer.Argument(
        help="The jobs, by registered name or module:object.",
        metavar="NAME",
        envvar="EPHEMERA_JOBS",
        parser=load_jobs,
    ),
]
"""An argument that names jobs."""
DatabaseUrl = Annotated[str, flag("--database-url", "PostgreSQL: postgresql://user:password@host/database.")]
"""The option `--database-url`."""
QueueUrl = Annotated[str | None, flag("--queue-url", "The server of role queue; default: --url.")]
"""The option `--queue-url`."""


@contextmanager
def database_errors() -> Iterator[None]:
    """Report a database error in one line, without what was sent."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        advice = "is --database-url right, and do the tables exist?"
        typer.echo(f"ephemera: the database refused: {refusal(error)}; {advice}", err=True)
        raise typer.Exit(1) from None


def refusal(error: Any) -> str:
    """A database's error in one line; never a part of the URL that may be a password."""
    text = str(error.orig).strip().partition("\n")[0]
    # A password with an unescaped @ ends up in what the driver takes for the host.
    return type(error.orig).__name__ if "@" in text else text


def address(url: str) -> str:
    """Host and port of a database URL, without credentials."""
    where = url.partition("://")[2].partition("/")[0].partition("?")[0].rpartition("@")[2]
    host, _, port = where.rpartition(":") if where.rpartition(":")[2].isdigit() else (where, "", "5432")
    return f"{host}:{port}" if host else "a local socket"
