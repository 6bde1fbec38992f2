"""Report invalid values by the option they were given with."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from ephemera.errors import InvalidValue


@contextmanager
def option_errors(**flags: str) -> Iterator[None]:
    """Turn `InvalidValue` into an error of an option: `option_errors(maxmemory="--memory")`."""
    try:
        yield
    except InvalidValue as error:
        if error.pattern not in flags:
            raise
        problem = f"{error.given} is not {error.expected}"
        raise typer.BadParameter(problem, param_hint=flags[error.pattern]) from None
