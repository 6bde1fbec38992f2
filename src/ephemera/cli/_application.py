"""The typer application: `--version`, one-line errors, and quiet exits on a closed pipe.

A reader of stdout may stop early, as `| head -1` does. That is not a failure: the command exits quietly with
code 0.
"""

import os
import select
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ephemera.errors import EphemeraError


class CommandWithFlags(TyperCommand):
    """A command whose help shows options without a value as such."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters for the help and for the parser."""
        return _without_bool(super().get_params(ctx))


class GroupWithFlags(TyperGroup):
    """A group of commands whose help shows options without a value as such."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters for the help and for the parser."""
        return _without_bool(super().get_params(ctx))


def _without_bool(parameters: list[Any]) -> list[Any]:
    """Remove typer's `<bool>` from options that take no value; `--help` among them."""
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters


class _Commands(GroupWithFlags):
    """Prints Ephemera's errors as one line; others are bugs and keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EphemeraError as error:
            typer.echo(f"ephemera: {error}", err=True)
            # A ValueError or TypeError means wrong usage.
            raise typer.Exit(2 if isinstance(error, (ValueError, TypeError)) else 1) from None
        except BrokenPipeError:
            if not _stdout_closed():
                raise  # another pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for buffered output
            raise typer.Exit(0) from None


def _stdout_closed() -> bool:
    """Whether stdout is a pipe closed by its reader."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def new_application() -> typer.Typer:
    """An application without commands."""
    app = typer.Typer(
        name="ephemera",
        cls=_Commands,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(
        epilog="[bold]Exit codes[/]: 0 success, 1 failure or findings, 2 wrong usage.\n\n"
        "Each option has an environment variable: [cyan]--some-flag[/] is [cyan]EPHEMERA_SOME_FLAG[/]."
    )(_root)
    return app


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"ephemera {version('ephemera-data')}, Python {sys.version.split()[0]}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Inspect and operate the Redis data of a service: its keys, servers, jobs and events."""
