"""Connections out of redis-py's pool and back, without a look at those that have just answered."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from redis.connection import ConnectionPool

_pools: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()


class _Process:
    """This process; to ask the kernel for its id takes a system call."""

    def __init__(self) -> None:
        self.id = os.getpid()

    def after_fork(self) -> None:
        """Learn the id, and replace locks that a thread of the parent may have held."""
        self.id = os.getpid()
        for pool in list(_pools):
            pool._lock, pool._fork_lock = threading.RLock(), threading.RLock()


_process = _Process()
os.register_at_fork(after_in_child=_process.after_fork)


def take(pool: Any) -> Any:
    """A connection, as `pool.get_connection` returns it."""
    if pool.__class__ is not ConnectionPool:
        return pool.get_connection()
    if pool.pid == _process.id:
        with pool._lock:
            idle = pool._available_connections
            if idle:
                connection = idle[-1]
                exchange = connection.__dict__.get("_ephemera_exchange")
                if exchange is not None and exchange.is_usable(connection):
                    pool._in_use_connections.add(idle.pop())
                    return connection
    _pools.add(pool)
    return pool.get_connection()


def is_alone(pool: Any) -> bool:
    """Whether the last call with this pool was made by the same thread."""
    before, now = pool.__dict__.get("_ephemera_caller"), threading.get_ident()
    pool._ephemera_caller = now
    return bool(before == now)


def give_back(client: Any, pool: Any, connection: Any) -> None:
    """Release a connection, reconnected if redis-py has asked for that."""
    try:
        if connection.should_reconnect():
            client._close_connection(connection)
            connection.connect()
    finally:
        exchange = connection.__dict__.get("_ephemera_exchange")
        if exchange is None or pool.__class__ is not ConnectionPool or connection._re_auth_token is not None:
            pool.release(connection)
        else:
            with pool._lock:
                if connection in pool._in_use_connections:
                    pool._in_use_connections.remove(connection)
                    pool._available_connections.append(connection)
