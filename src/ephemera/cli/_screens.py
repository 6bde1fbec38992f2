"""The console that all commands print tables on: stdout, as a terminal or a pipe.

Keys are printed unchanged: one may contain `:x:`, which rich would render as an emoji. A reader may stop at
any line (`| head -1`): that raises `BrokenPipeError`, as `typer.echo` does, and the command exits quietly.
"""

import os
from typing import Any

from rich.console import Console

_PIPED_WIDTH = 180  # characters


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error; rich would exit with code 1."""
        raise  # rich calls this while it handles the error


def screen(**options: Any) -> Console:
    """A console for stdout, as wide as the terminal or `COLUMNS`; options are those of rich."""
    console = _Screen(emoji=False, **options)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPED_WIDTH
    return console
