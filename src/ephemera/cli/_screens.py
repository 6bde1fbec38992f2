"""The console that all commands print tables on: stdout, as a terminal or a pipe.

Keys are printed unchanged: one may contain `:x:`, which rich would render as an emoji. A reader may stop at
any line (`| head -1`): that raises `BrokenPipeError`, as `typer.echo` does, and the command exits quietly.
"""

import os
from typing import Any

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 180  # characters
_WIDER = 10_000  # characters, than any row


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error; rich would exit with code 1."""
        raise  # rich calls this while it handles the error


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table on a console, by default that of `screen`.

    Where it is too narrow for a word or an id, each row becomes a record of one line per value.
    """
    console = console or screen()
    if Measurement.get(console, console.options.update_width(_WIDER), table).minimum <= console.width:
        console.print(table)
        return
    if table.title:
        console.print(table.title, style="italic")
    for row in zip(*(column.cells for column in table.columns), strict=True):
        record = Table.grid(padding=(0, 2, 0, 0))
        record.add_column(style="bold")
        record.add_column(overflow="fold")
        for column, value in zip(table.columns, row, strict=True):
            if value:
                record.add_row(column.header, _styled(value, column.style))
        console.print(record, "")


def _styled(value: RenderableType, style: Any) -> RenderableType:
    return Text.from_markup(value, style=style, emoji=False) if isinstance(value, str) else value


def screen(**options: Any) -> Console:
    """A console for stdout, as wide as the terminal or `COLUMNS`; options are those of rich."""
    console = _Screen(emoji=False, **options)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPED_WIDTH
    return console
