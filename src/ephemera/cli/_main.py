"""The whole command line: our commands, then those that installed packages register.

A process that runs one command imports that command alone: `ephemera serve` does not wait for the modules of
`ephemera audit`. Help and unknown names load everything.
"""

from __future__ import annotations

import importlib
import sys

import typer

from ephemera.cli import _plugins
from ephemera.cli._application import new_application
from ephemera.cli._command import Command

_MODULES = {
    "new": "_new",
    "catalogue": "_catalogue",
    "audit": "_audit",
    "doctor": "_doctor",
    "dashboard": "_dashboard",
    "infer": "_infer",
    "adopt": "_adopt",
    "plan": "_plan",
    "sweep": "_sweep",
    "acl": "_acl",
    "server-config": "_server_config",
    "mark": "_mark",
    "locks": "_locks",
    "events": "_events",
    "jobs": "_jobs",
    "migrate": "_migrate",
    "worker": "_worker",
    "console": "_console",
}
"""The module of each command or group of commands, in the order of the help."""


def commands() -> list[Command]:
    """Every command, in the order of the help; a plug-in that cannot be loaded is reported and left out."""
    found = [command for name in _MODULES for command in _own(name)]
    for name in _plugins.registered(_plugins.COMMANDS):
        if name in _MODULES:
            typer.echo(
                f"ephemera: an installed package registers {name}, a built-in command: ignored", err=True
            )
        else:
            found += _registered(name)
    return found


def create_app(only: str | None = None) -> typer.Typer:
    """The command line as a typer application; with `only`, the command or group of that name alone."""
    app = new_application()
    wanted = _own(only) if only in _MODULES else _registered(only) if only is not None else []
    for command in wanted or commands():
        command.add_to(app)
    return app


def main() -> None:
    """Run the command line; the entry point of the console script."""
    first = sys.argv[1] if len(sys.argv) > 1 else None
    create_app(only=first)(prog_name="ephemera")


def _own(name: str | None) -> list[Command]:
    module = importlib.import_module(f"ephemera.cli.{_MODULES[name or '']}")
    one: Command | None = getattr(module, "COMMAND", None)
    return list(module.COMMANDS) if one is None else [one]


def _registered(name: str) -> list[Command]:
    """The command that an installed package registers, if there is one that can be used."""
    point = _plugins.registered(_plugins.COMMANDS).get(name)
    if point is None:
        return []
    try:
        command = _plugins.load(point)
    except typer.BadParameter as problem:
        typer.echo(f"ephemera: the command {name} is not available: {problem.message}", err=True)
        return []
    if not isinstance(command, Command):
        typer.echo(f"ephemera: the command {name} is not available: it is not a Command", err=True)
        return []
    return [command]
