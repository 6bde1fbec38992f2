"""Give redis-py's own classes our methods, and take them away again."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any


class ReplacedMethods:
    """Methods that take the place of those with the same names, for as long as one installation is open."""

    def __init__(self, *methods: tuple[Any, str, Any]) -> None:
        self._ours = methods
        self._stock = [(owner, name, owner.__dict__[name]) for owner, name, _ in methods]
        self._installed = 0

    def install(self) -> ExitStack:
        """Replace them. Closing what is returned undoes it, unless another installation is open."""
        self._installed += 1
        self._set(self._ours)
        installation = ExitStack()
        installation.callback(self._uninstall)
        return installation

    def _uninstall(self) -> None:
        self._installed -= 1
        if not self._installed:
            self._set(self._stock)

    def _set(self, methods: Any) -> None:
        for owner, name, method in methods:
            setattr(owner, name, method)
