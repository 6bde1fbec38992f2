"""Checks of what a service passes to a declaration, so that mistakes are reported where they are made.

A type checker finds a number in place of a `timedelta`, or two arguments in the wrong order. For those who
run none, these checks name the parameter. A handler or loader that cannot be called or awaited would
otherwise fail with each event and each miss, far from its definition. What only a call could show is
accepted: a lambda, a wrapper with `*args`, and a `def` that is annotated as returning an awaitable.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from datetime import timedelta
from functools import partial
from typing import Any

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace._catalogue import Catalogue
from ephemera.keyspace._lifetime import duration_problem

_AWAITABLE = ("Awaitable", "Coroutine", "Future", "Task")  # in an annotation, which may be a string


def check_declaration(catalogue: Catalogue, pattern: str, /, **durations: timedelta) -> None:
    """Check the catalogue, the pattern and the durations that a declaration was given."""
    first: object = catalogue
    second: object = pattern
    if not isinstance(first, Catalogue):
        raise InvalidDeclaration(
            str(first if isinstance(first, str) else second),
            f"the first parameter is the catalogue, not {type(first).__name__}",
            "pass the object that Catalogue('...') returned",
        )
    if not isinstance(second, str):
        raise InvalidDeclaration(
            first.name,
            f"the second parameter is the key pattern, not {type(second).__name__}",
            "pass a string",
        )
    check_durations(pattern, **durations)


def check_durations(declared: str, /, **durations: timedelta) -> None:
    """Check that each argument is a `timedelta`; `declared` is the pattern or name for the error."""
    if (wrong := duration_problem(**durations)) is not None:
        raise InvalidDeclaration(declared, *wrong)


def check_field_names(pattern: str, fields: Collection[str], reserved: Collection[str], what: str) -> None:
    """Check that no field of the pattern has the name of a parameter, or of a field that `what` adds."""
    for name in fields:
        if name in reserved:
            raise InvalidDeclaration(pattern, f"{name!r} cannot name a field of {what}", "rename it")


def check_async(declared: str, given: object, form: str, *args: str, **named: str) -> None:
    """Check that `given` is an async function of these arguments; `form` shows how to write one."""
    if not callable(given):
        problem = f"{given!r} cannot be called"
    elif _is_plain(given):
        problem = f"{_name(given)} is not async, so its result cannot be awaited"
    elif not _takes(given, args, named):
        problem = f"{_name(given)} cannot be called with {', '.join((*args, *named)) or 'no arguments'}"
    else:
        return
    raise InvalidDeclaration(declared, problem, f"write it as: {form}")


def _is_plain(given: object) -> bool:
    """Whether it is certainly a Python function whose result cannot be awaited."""
    function: Any = inspect.unwrap(_without_partial(given))
    if not inspect.isroutine(function):
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        return False
    returns = str(function.__annotations__.get("return", ""))
    takes_anything = bool(function.__code__.co_flags & inspect.CO_VARARGS)
    return not (
        function.__name__ == "<lambda>" or takes_anything or any(word in returns for word in _AWAITABLE)
    )


def _takes(given: Any, args: tuple[str, ...], named: dict[str, str]) -> bool:
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):
        return True  # it has no signature
    try:
        signature.bind(*args, **named)
    except TypeError:
        return False
    return True


def _name(given: Any) -> str:
    return str(getattr(_without_partial(given), "__qualname__", type(given).__name__))


def _without_partial(given: Any) -> Any:
    while isinstance(given, partial):
        given = given.func
    return given
