"""What is wrong with what was typed, by the name of its flag: a program's words for it are not the user's."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from ephemera.errors import InvalidValue


@contextmanager
def given_as(**flags: str) -> Iterator[None]:
    """Tell of a value that does not fit as one of a flag: `given_as(maxmemory="--memory")`."""
    try:
        yield
    except InvalidValue as error:
        if error.pattern not in flags:
            raise
        problem = f"{error.given} is not {error.expected}"
        raise typer.BadParameter(problem, param_hint=flags[error.pattern]) from None
