"""Functions that a service hands in, looked at when they are handed in.

A handler or loader that cannot be called so, or cannot be awaited, would fail with each event and each miss,
far from where it was given. What only a call could tell is let pass: a lambda, a wrapper that takes whatever
comes, and a `def` that is annotated as giving an awaitable may well give one.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from ephemera.errors import InvalidDeclaration

_AWAITABLE = ("Awaitable", "Coroutine", "Future", "Task")  # in an annotation, which may be a text


def check_async(declared: str, given: object, form: str, *args: str, **named: str) -> None:
    """Refuse what is no async function of such arguments; `form` is how to write one."""
    if not callable(given):
        problem = f"{given!r} cannot be called"
    elif _is_plain(given):
        problem = f"{_name(given)} is not async, and what it gives cannot be awaited"
    elif not _takes(given, args, named):
        problem = f"{_name(given)} cannot be called with {', '.join((*args, *named)) or 'nothing'}"
    else:
        return
    raise InvalidDeclaration(declared, problem, f"write it as: {form}")


def _is_plain(given: object) -> bool:
    """Whether it certainly is a function of Python that nobody can await."""
    function: Any = inspect.unwrap(_without_partial(given))
    if not inspect.isroutine(function):
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        return False
    told = str(function.__annotations__.get("return", ""))
    takes_anything = bool(function.__code__.co_flags & inspect.CO_VARARGS)
    return not (function.__name__ == "<lambda>" or takes_anything or any(word in told for word in _AWAITABLE))


def _takes(given: Any, args: tuple[str, ...], named: dict[str, str]) -> bool:
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):
        return True  # it does not say what it takes
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
