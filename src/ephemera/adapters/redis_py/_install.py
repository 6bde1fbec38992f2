"""Give redis-py's async classes our methods, and take them away again."""

from __future__ import annotations

from contextlib import ExitStack

from redis.asyncio import client, cluster

from ephemera.adapters.redis_py import _client, _cluster
from ephemera.adapters.redis_py._replaced_methods import ReplacedMethods

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
