"""`Redis`: commands run as exchanges on connections of its pool.

The functions here take the place of methods of redis-py's classes: in the subclasses, and after `install()`
in redis-py's classes themselves. So they call redis-py's own methods by name, not by `super()`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from redis import client as stock
from redis.client import EMPTY_RESPONSE, NEVER_DECODE
from redis.connection import ConnectionPool
from redis.observability import recorder
from redis.observability.providers import get_observability_instance

from ephemera.adapters.redis_py._replaced_methods import ReplacedMethods
from ephemera.adapters.redis_py.sync._exchange import checked, exchange_on, packed
from ephemera.adapters.redis_py.sync._pipeline import Pipeline, execute_pipeline, execute_transaction
from ephemera.adapters.redis_py.sync._pool import give_back, is_alone, take

_execute_stock = stock.Redis._execute_command
_parse_stock = stock.Redis.parse_response
_observability = get_observability_instance()


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
    """Go on as redis-py does after a first attempt that failed with `problem`."""
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
