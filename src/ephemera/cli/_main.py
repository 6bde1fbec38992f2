"""The whole command line: our commands, then those that installed packages register."""

from __future__ import annotations

from functools import cache

import typer

from ephemera.cli import (
    _acl,
    _audit,
    _catalogue,
    _console,
    _dashboard,
    _doctor,
    _events,
    _infer,
    _jobs,
    _locks,
    _mark,
    _plugins,
    _server_config,
    _worker,
)
from ephemera.cli._application import new_application
from ephemera.cli._command import Command

_OWN = (
    _catalogue.COMMAND,
    _audit.COMMAND,
    _doctor.COMMAND,
    _dashboard.COMMAND,
    _infer.COMMAND,
    _acl.COMMAND,
    _server_config.COMMAND,
    _mark.COMMAND,
    _locks.COMMAND,
    *_events.COMMANDS,
    *_jobs.COMMANDS,
    _worker.COMMAND,
    _console.COMMAND,
)


@cache
def commands() -> tuple[Command, ...]:
    """Every command, in the order of the help; a plug-in that cannot be loaded is reported and left out."""
    found = list(_OWN)
    taken = {command.name for command in found}
    for name, point in _plugins.registered(_plugins.COMMANDS).items():
        try:
            command = _plugins.load(point)
        except typer.BadParameter as problem:
            typer.echo(f"ephemera: the command {name} is left out: {problem.message}", err=True)
            continue
        if not isinstance(command, Command) or command.name in taken:
            why = "it is not a Command" if not isinstance(command, Command) else "there is one of this name"
            typer.echo(f"ephemera: the command {name} is left out: {why}", err=True)
            continue
        taken.add(command.name)
        found.append(command)
    return tuple(found)


def create_app() -> typer.Typer:
    """The command line as a typer application."""
    app = new_application()
    for command in commands():
        command.add_to(app)
    return app


def main() -> None:
    """Run the command line; the entry point of the console script."""
    create_app()(prog_name="ephemera")
