"""Replace methods of redis-py's own classes with ours, and restore them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from redis.asyncio import client, cluster

from ephemera.adapters.redis_py import _client, _cluster


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


_methods = ReplacedMethods(
    (client.Redis, "execute_command", _client.execute_command),
    (client.Pipeline, "execute", _client.execute_pipeline),
    (client.Pipeline, "reset", _client.reset_pipeline),
    (cluster.ClusterNode, "execute_command", _cluster.execute_command),
    (cluster.ClusterNode, "execute_pipeline", _cluster.execute_pipeline),
    (cluster.ClusterNode, "disconnect", _cluster.disconnect),
    (cluster.ClusterNode, "__del__", _cluster.delete),
)


def install() -> ExitStack:
    """Have everything that uses `redis.asyncio` in this process share connections; `close()` undoes it.

    The methods of redis-py's classes are replaced, so clients that exist already, subclasses, and names that
    were imported before take part too. Use it as a context manager to undo it at the end of a block. Of
    several installations the last one that is closed undoes it.
    """
    return _methods.install()
