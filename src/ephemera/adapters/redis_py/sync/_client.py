"""`Redis` and its pipelines: redis-py's own code on exchanges, on connections of its pool.

The functions here take the place of methods of redis-py's classes: in the subclasses, and after `install()`
in redis-py's classes themselves. So they call redis-py's own methods by name, not by `super()`. Connections
leave the pool without a look at those that have just answered, and one that runs a pipeline has read all
replies before the first is asked for.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from redis import client as stock
from redis.client import EMPTY_RESPONSE, NEVER_DECODE
from redis.connection import ConnectionPool
from redis.observability import recorder
from redis.observability.providers import get_observability_instance
from redis.utils import str_if_bytes

from ephemera.adapters.redis_py._install import ReplacedMethods
from ephemera.adapters.redis_py.sync._exchange import Exchange, checked, exchange_on, packed

_pools: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()

_execute_transaction_stock = stock.Pipeline._execute_transaction
_execute_pipeline_stock = stock.Pipeline._execute_pipeline
Commands = Sequence[tuple[tuple[Any, ...], dict[str, Any]]]

_execute_stock = stock.Redis._execute_command
_parse_stock = stock.Redis.parse_response
_observability = get_observability_instance()


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


class _ReadAhead:
    """A connection, as redis-py's pipelines use it."""

    def __init__(self, connection: Any, exchange: Exchange) -> None:
        self._connection = connection
        self._exchange = exchange
        self._count = 0
        self._replies: Iterator[Any] = iter(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def pack_commands(self, commands: Sequence[tuple[Any, ...]]) -> bytes:
        """Pack the commands of a pipeline."""
        self._count = len(commands)
        return b"".join([packed(self._connection, each) for each in commands])

    def send_packed_command(self, command: bytes) -> None:
        """Send them, and read the replies."""
        self._replies = iter(self._exchange.run(self._connection, command, self._count))

    def read_response(self) -> Any:
        """The next reply."""
        return checked(self._connection, next(self._replies))


def _read_ahead(connection: Any, commands: Commands) -> Any:
    """The connection with its replies read ahead, or itself when only redis-py's own way will do."""
    if any(NEVER_DECODE in options or _is_himport(args[0]) for args, options in commands):
        return connection
    exchange = exchange_on(connection)
    return connection if exchange is None else _ReadAhead(connection, exchange)


def _is_himport(name: Any) -> bool:
    """Whether a command prepares the connection with other commands."""
    return bool(str_if_bytes(name).upper().startswith("HIMPORT"))


def execute_transaction(pipeline: Any, connection: Any, commands: Commands, raise_on_error: bool) -> Any:
    """Run a pipeline between MULTI and EXEC."""
    return _execute_transaction_stock(pipeline, _read_ahead(connection, commands), commands, raise_on_error)


def execute_pipeline(pipeline: Any, connection: Any, commands: Commands, raise_on_error: bool) -> Any:
    """Run a pipeline."""
    return _execute_pipeline_stock(pipeline, _read_ahead(connection, commands), commands, raise_on_error)


class Pipeline(stock.Pipeline):
    """`redis.client.Pipeline`."""

    _execute_transaction = execute_transaction
    _execute_pipeline = execute_pipeline


def execute_command(client: Any, *args: Any, **options: Any) -> Any:
    """Run a command with redis-py's retries, errors and response callbacks."""
    name, pool = args[0], client.connection_pool
    if _is_unusual(client, name, pool, options):
        return _execute_stock(client, *args, **options)
    connection = take(pool)
    try:
        try:
            exchange = exchange_on(connection)
            if exchange is None:
                raise _NotEligible
            reply = exchange.run(connection, packed(connection, args), 1, is_alone(pool))[0]
            if isinstance(reply, (Exception, list)):
                checked(connection, reply)
        except Exception as problem:
            return _with_retries(client, connection, problem, args, options)
    finally:
        give_back(client, pool, connection)
    options.pop("keys", None)  # for redis-py's client-side cache
    callback = client.response_callbacks.get(name)
    return reply if callback is None else callback(reply, **options)


class _NotEligible(Exception):
    """Only redis-py's own way will do on this connection."""


def _is_unusual(client: Any, name: Any, pool: Any, options: dict[str, Any]) -> bool:
    """Whether only redis-py's own way will do for this call."""
    return (
        client.connection is not None
        or name.__class__ is not str
        or " " in name
        or name == "HIMPORT"
        or NEVER_DECODE in options
        or EMPTY_RESPONSE in options
        or type(client).parse_response is not _parse_stock
        or _observability._provider_manager is not None
        or recorder._metrics_collector is not None
        or not isinstance(pool, ConnectionPool)
    )


def _with_retries(
    client: Any, connection: Any, problem: Exception, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Continue as redis-py does after a first attempt that failed with `problem`."""
    problems = [] if isinstance(problem, _NotEligible) else [problem]

    def attempt() -> Any:
        if problems:
            raise problems.pop()
        return client._send_command_parse_response(connection, args[0], *args, **options)

    return connection.retry.call_with_retry(attempt, lambda _: connection.disconnect())


class Redis(stock.Redis):
    """`redis.Redis`, with the same arguments, methods, replies and errors."""

    _execute_command = execute_command

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        """A pipeline; `transaction` says whether MULTI and EXEC go around it."""
        return Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


_methods = ReplacedMethods(
    (stock.Redis, "_execute_command", execute_command),
    (stock.Pipeline, "_execute_transaction", execute_transaction),
    (stock.Pipeline, "_execute_pipeline", execute_pipeline),
)


def install() -> ExitStack:
    """Have every `redis.Redis` of this process take the faster way; `close()` undoes it.

    The methods of redis-py's classes are replaced, so clients that exist already, subclasses, and names that
    were imported before take part too. Use it as a context manager to undo it at the end of a block. Of
    several installations the last one that is closed undoes it.
    """
    return _methods.install()
