"""`RedisCluster`: each node has a shared connection, and redis-py decides which node a command goes to.

redis-py keeps the slot map, follows MOVED and ASK, retries and splits pipelines by node. What a node is asked
goes over its shared connection. An ASKING is sent together with the command that it is for, because the
server takes it for the next command on the connection, whichever caller that is from.

As in `_client`, the functions take the place of methods: of `SharedNode`, and of redis-py's `ClusterNode`
after `install()`.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

from redis.asyncio import cluster as stock

from ephemera.adapters.redis_py._client import BatchConnection
from ephemera.adapters.redis_py._commands import shared_words
from ephemera.adapters.redis_py._shared_connection import (
    CONNECTION_CLASSES,
    Links,
    SharedConnection,
    template_of,
)

_execute_stock = stock.ClusterNode.execute_command
_execute_pipeline_stock = stock.ClusterNode.execute_pipeline
_disconnect_stock = stock.ClusterNode.disconnect
_delete_stock = stock.ClusterNode.__del__

_links: dict[int, tuple[dict[str, Any], Links]] = {}
"""By the id of the node: its class has no room for an attribute, and cannot be referred to weakly.

The node's own settings are beside them, by which a later node with the same id differs.
"""
_NONE: tuple[None, None] = (None, None)
_asking: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
"""Tasks whose next command is for a slot that is being imported."""


async def execute_command(self: Any, *args: Any, asking: bool = False, **options: Any) -> Any:
    """Run a command on the node's shared connection, or on one of its own if it needs that."""
    if args[0] == "ASKING" and (task := asyncio.current_task()) is not None:
        _asking.add(task)
        return True
    asks = _takes_asking()
    shared = await _open(self) if shared_words(args) is not None else None
    if shared is None:
        if asks:
            await _execute_stock(self, "ASKING")
        return await _execute_stock(self, *args, asking=asking, **options)
    batch = BatchConnection(shared)
    await batch.send_packed_command(batch.pack_commands([("ASKING",), args] if asks else [args]))
    if asks:
        await batch.read_response()
    return await self.parse_response(batch, args[0], **options)


async def execute_pipeline(self: Any, commands: list[Any]) -> bool:
    """Run the commands of a pipeline that are for this node, in their order."""
    may_share = all(shared_words(command.args) is not None for command in commands)
    shared = await _open(self) if may_share else None
    if shared is None:
        failed: bool = await _execute_pipeline_stock(self, commands)
        return failed
    batch = BatchConnection(shared)
    await batch.send_packed_command(batch.pack_commands(command.args for command in commands))
    for command in commands:
        try:
            command.result = await self.parse_response(batch, command.args[0], **command.kwargs)
        except Exception as error:
            command.result = error
    return any(isinstance(command.result, Exception) for command in commands)


async def disconnect(self: Any) -> None:
    """Close every connection to the node; commands that were on their way open them again."""
    _, links = _links.get(id(self), _NONE)
    if links is not None:
        await links.aclose()
    await _disconnect_stock(self)


def delete(self: Any) -> None:
    """Have the shared connection closed when the node is garbage."""
    _, links = _links.pop(id(self), _NONE)
    if links is not None:
        links.retire()
    _delete_stock(self)


async def _open(node: Any) -> SharedConnection | None:
    """The shared connection, if it is up and the node's connections are of redis-py's classes."""
    classes = {node.connection_class, *map(type, node._free)}
    if not classes.issubset(CONNECTION_CLASSES):
        return None
    settings, links = _links.get(id(node), _NONE)
    if links is None or settings is not node.connection_kwargs:
        if links is not None:
            links.retire()
        template = template_of(node.connection_class, node.connection_kwargs)
        reads_replicas = template.redis_connect_func is not None
        links = Links(template, (("READONLY",),) if reads_replicas else ())
        _links[id(node)] = (node.connection_kwargs, links)
    shared = await links.open()
    return shared if shared is not None and shared.up else None


def _takes_asking() -> bool:
    """Whether this task has said ASKING, for this one command."""
    task = asyncio.current_task() if _asking else None
    if task is None or task not in _asking:
        return False
    _asking.discard(task)
    return True


class SharedNode(stock.ClusterNode):
    """A node of a cluster whose commands go over one connection."""

    __slots__ = ()

    execute_command = execute_command
    execute_pipeline = execute_pipeline
    disconnect = disconnect
    __del__ = delete


class RedisCluster(stock.RedisCluster):
    """A drop-in for `redis.asyncio.RedisCluster` with one connection to each node."""

    async def initialize(self, **options: Any) -> Any:
        """Read the slot map, and have each node share its connection."""
        self._share_nodes()
        initialized = await super().initialize(**options)
        self._share_nodes()
        return initialized

    async def _execute_command(self, target_node: Any, *args: Any, **options: Any) -> Any:
        if type(target_node) is stock.ClusterNode:  # a redirection has made it known
            target_node.__class__ = SharedNode
        return await super()._execute_command(target_node, *args, **options)

    def _share_nodes(self) -> None:
        nodes = self.nodes_manager
        for node in (*nodes.nodes_cache.values(), *nodes.startup_nodes.values()):
            if type(node) is stock.ClusterNode:
                node.__class__ = SharedNode
