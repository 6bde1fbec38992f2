"""The application that commands are added to: `--version`, and errors as one line."""

import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ephemera.errors import EphemeraError


class _Commands(TyperGroup):
    """Turns errors that say what to do into one line; others are our mistakes and keep their trace."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EphemeraError as error:
            typer.echo(f"ephemera: {error}", err=True)
            # What also is a ValueError or TypeError was given to us wrongly.
            raise typer.Exit(2 if isinstance(error, (ValueError, TypeError)) else 1) from None


app = typer.Typer(
    name="ephemera",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ephemera {version('ephemera')}, Python {sys.version.split()[0]}")
        raise typer.Exit


@app.callback(
    epilog="[bold]Exit codes[/]: 0 done, 1 failed or something was found, 2 called wrongly.\n\n"
    "Each flag may be given by the environment: [cyan]--some-flag[/] is [cyan]EPHEMERA_SOME_FLAG[/]."
)
def root(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """The expendable data layer of a service: what its keys are, and whether a server agrees."""


def main() -> None:
    """Run the command line; the entry point of the console script."""
    app(prog_name="ephemera")
