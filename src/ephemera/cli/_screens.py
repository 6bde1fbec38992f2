"""What the tables of all commands are printed on: stdout as people read it, in a terminal or through a pipe.

Keys are printed as they are: one may hold `:x:`, which rich would make a picture of. Who reads may stop at
any line (`| head -1`): that is `BrokenPipeError` here as for `typer.echo`, and `application` ends quietly.
"""

from typing import Any

from rich.console import Console

_PIPED_WIDTH = 180  # characters; nobody's terminal decides where a file's lines break


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Let the error go on its way: rich itself would end the process, with code 1."""
        raise  # rich calls this while it handles the error


def screen(**options: Any) -> Console:
    """A console for stdout; options are those of rich."""
    made = _Screen(emoji=False, **options)
    if not made.is_terminal:
        made.width = _PIPED_WIDTH
    return made
