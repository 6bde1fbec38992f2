"""What a function's annotations say, one at a time: those that are not asked for need not be importable."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, get_type_hints

from ephemera.errors import InvalidDeclaration


def annotation(function: Callable[..., Any], name: str) -> Any:
    """The type of a parameter, or of `return`; `Any` where there is none."""
    written = inspect.unwrap(function.func if isinstance(function, partial) else function)
    found = getattr(written, "__annotations__", {}).get(name, Any)

    def alone() -> None: ...

    alone.__annotations__ = {name: found}
    try:
        return get_type_hints(alone, globalns=getattr(written, "__globals__", {}), include_extras=True)[name]
    except NameError as problem:
        raise InvalidDeclaration(
            getattr(written, "__qualname__", repr(written)),
            f"its annotation of {name!r} cannot be read: {problem}",
            "values are stored by it, so import what it names at the module's top, not under TYPE_CHECKING",
        ) from problem
