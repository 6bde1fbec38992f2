"""`ephemera mark`: say whose server this is, or ask it."""

from typing import Annotated

import msgspec
import typer

from ephemera.cli._command import AsJson, Command, Url, flag, run
from ephemera.cli._flag_errors import given_as
from ephemera.keyspace import SERVER_IDENTITY
from ephemera.operations.configuration import ServerMark, mark_server


def mark(
    url: Url,
    name: Annotated[
        str | None,
        flag("--name", "The store that the server belongs to.", show_default="only look", metavar="NAME"),
    ] = None,
    force: Annotated[bool, flag("--force", "Replace the mark of another store.")] = False,
    json: AsJson = False,
) -> None:
    """Mark a server with the name of its store, or show the mark that it carries.

    A store that is opened with `identity="slides-cache"` refuses a server with another mark or none, so a
    wrong port never writes into a neighbour's database. On a cluster one mark is for all of it.

    A mark binds everybody: from then on a store that is opened without `identity=`, or with another name,
    refuses this server, too (WrongServer). Those that are open already go on until they are opened anew. So
    give every service of this database the name when you mark it.
    """
    if force and name is None:
        raise typer.BadParameter(
            "it replaces a mark by another: say which, with --name", param_hint="--force"
        )
    with given_as(**{SERVER_IDENTITY.pattern: "--name"}):
        done = run(mark_server(url, name, force=force))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(done)))
    else:
        typer.echo(_sentence(done))


def _sentence(done: ServerMark) -> str:
    modules = f"; modules: {', '.join(done.modules)}" if done.modules else ""
    if done.mark is None:
        return f"{done.address} carries no mark{modules}"
    if done.before == done.mark:
        return f"{done.address} is marked as {done.mark!r}{modules}"
    before = f"it was {done.before!r}" if done.before else "it had no mark"
    return f"{done.address} is marked as {done.mark!r} now, {before}{modules}"


COMMAND = Command(
    "mark",
    mark,
    examples=(
        ("mark a server", "--url redis://cache.internal --name slides-cache"),
        ("whose server is it?", "--url redis://cache.internal"),
        ("it has changed hands", "--url redis://cache.internal --name slides-cache --force"),
    ),
    exits={1: "failed, or it is marked as another's"},
)
