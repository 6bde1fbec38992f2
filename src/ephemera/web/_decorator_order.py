"""Notices a limit or a page above the decorator of its route, where no request would reach it.

    @eph.limit("3/hour")    # the framework has the bare function already
    @app.post("/login")
    async def login(...): ...

The decorators of FastAPI and Flask return the function that they are given, so nothing fails there. Here
functions remember by what they were replaced, and an application with a route to such a function, and none to
its replacement, is refused when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import isfunction
from typing import Any, TypeVar

from ephemera.errors import InvalidDeclaration

W = TypeVar("W")

_REPLACED = "__ephemera_replaced__"


def replacing(function: Callable[..., Any], replacement: W) -> W:
    """Return what replaces a function as a route, and have the function remember it."""
    if isfunction(function):
        vars(function)[_REPLACED] = (function, replacement)  # other decorators copy it with the rest
    return replacement


def check_order(endpoints: Iterable[Callable[..., Any]]) -> None:
    """Refuse an application whose routes have functions in place of their replacements."""
    functions = list(endpoints)
    known = {id(each) for each in functions}
    for each in functions:
        function, replacement = getattr(each, _REPLACED, (None, None))
        if function is each and id(replacement) not in known:
            raise InvalidDeclaration(
                each.__qualname__,
                "its limit or page stands above the decorator of its route, so no request reaches it",
                "put @eph.limit and @eph.page below @app.get",
            )
