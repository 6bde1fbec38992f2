"""`ephemera server-config`: a configuration file for a role."""

from typing import Annotated

import msgspec
import typer

from ephemera.cli._command import AsJson, Command, flag
from ephemera.cli._flag_errors import option_errors
from ephemera.keyspace import Role
from ephemera.operations.configuration import DEFAULT_MEMORY, server_config, server_settings


def show(
    role: Annotated[Role, flag("--role", "cache: may lose data; queue: must not.")],
    memory: Annotated[
        str, flag("--memory", "Memory for keys and values: 256mb, 1gb.", metavar="AMOUNT")
    ] = DEFAULT_MEMORY,
    json: AsJson = False,
) -> None:
    """Print a configuration file for a server of a role, with the reason for each setting.

    A cache evicts the least recently used keys and saves nothing. A queue never evicts, and writes a log that
    loses at most about a second. The audit checks a live server against the same roles.
    """
    with option_errors(maxmemory="--memory"):
        settings = {each.name: each.value for each in server_settings(role, memory)}
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(settings)))
    else:
        typer.echo(server_config(role, memory), nl=False)


COMMAND = Command(
    "server-config",
    show,
    examples=(
        ("a cache of half a gigabyte", "--role cache --memory 512mb > cache.conf"),
        ("a server for queues, streams and unflushed counters", "--role queue > queue.conf"),
        ("as JSON", "--role queue --json"),
    ),
)
