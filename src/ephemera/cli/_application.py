"""The application that commands are added to: `--version`, errors as one line, and readers who had enough.

Who reads stdout may stop reading, as `| head -1` does. That is no failure, whatever it was printed by: the
command ends quietly, with code 0.
"""

import os
import select
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ephemera.errors import EphemeraError


class Flags:
    """Shows flags that take no value without one, where typer says `<bool>`; `--help` among them."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters for the help and for the parser."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of the command that it is mixed in
        for each in found:
            if getattr(each, "is_flag", False) and each.metavar is None:
                each.metavar = ""
        return found


class CommandWithFlags(Flags, TyperCommand):
    """A command."""


class GroupWithFlags(Flags, TyperGroup):
    """A group of commands."""


class _Commands(GroupWithFlags):
    """Turns errors that say what to do into one line; others are our mistakes and keep their trace."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EphemeraError as error:
            typer.echo(f"ephemera: {error}", err=True)
            # What also is a ValueError or TypeError was given to us wrongly.
            raise typer.Exit(2 if isinstance(error, (ValueError, TypeError)) else 1) from None
        except BrokenPipeError:
            if not _nobody_reads():
                raise  # another pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered goes there
            raise typer.Exit(0) from None


def _nobody_reads() -> bool:
    """Whether stdout is a pipe that was closed at its other end."""
    looked = select.poll()
    looked.register(sys.stdout.fileno(), select.POLLOUT)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in looked.poll(0))


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
        epilog="[bold]Exit codes[/]: 0 done, 1 failed or something was found, 2 called wrongly.\n\n"
        "Each flag has an environment variable: [cyan]--some-flag[/] is [cyan]EPHEMERA_SOME_FLAG[/]."
    )(_root)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ephemera {version('ephemera-data')}, Python {sys.version.split()[0]}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """The expendable data layer of a service: what its keys are, and whether a server agrees."""
