"""`ephemera mark`: give a server a name that stores check, or show it."""

from typing import Annotated

import msgspec
import typer

from ephemera.cli._command import AsJson, Command, Url, flag, run
from ephemera.cli._flag_errors import option_errors
from ephemera.keyspace import SERVER_IDENTITY
from ephemera.operations.configuration import ServerMark, mark_server


def mark(
    url: Url,
    name: Annotated[
        str | None,
        flag(
            "--name",
            "The name of the store that the server belongs to.",
            show_default="only show the mark",
            metavar="NAME",
        ),
    ] = None,
    force: Annotated[bool, flag("--force", "Replace the mark of another store.")] = False,
    json: AsJson = False,
) -> None:
    """Mark a server with the name of its store, or show its mark.

    A store opened with `identity="slides-cache"` refuses a server with another mark or none, so a wrong port
    never writes into another service's database. A cluster has one mark.

    A mark applies to all stores: from then on a store opened without `identity=`, or with another name,
    refuses this server, too (WrongServer). Stores that are already open continue until they are opened again.
    So configure the name in every service of this database when you mark it.
    """
    if force and name is None:
        raise typer.BadParameter("it replaces a mark: give the new one with --name", param_hint="--force")
    with option_errors(**{SERVER_IDENTITY.pattern: "--name"}):
        done = run(mark_server(url, name, force=force))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(done)))
    else:
        typer.echo(_sentence(done))


def _sentence(done: ServerMark) -> str:
    modules = f"; modules: {', '.join(done.modules)}" if done.modules else ""
    if done.mark is None:
        return f"{done.address} has no mark{modules}"
    if done.before == done.mark:
        return f"{done.address} is marked as {done.mark!r}{modules}"
    before = f"it was {done.before!r}" if done.before else "it had no mark"
    return f"{done.address} is marked as {done.mark!r} now, {before}{modules}"


COMMAND = Command(
    "mark",
    mark,
    examples=(
        ("mark a server", "--url redis://cache.internal --name slides-cache"),
        ("show the mark", "--url redis://cache.internal"),
        ("replace the mark", "--url redis://cache.internal --name slides-cache --force"),
    ),
    exits={1: "failure, or the server has another mark"},
)
