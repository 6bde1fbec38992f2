"""Pipelines: redis-py's own code, on a connection that has read all replies before the first is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from redis import client as stock
from redis.client import NEVER_DECODE
from redis.utils import str_if_bytes

from ephemera.adapters.redis_py.sync._exchange import Exchange, checked, exchange_on, packed

_execute_transaction_stock = stock.Pipeline._execute_transaction
_execute_pipeline_stock = stock.Pipeline._execute_pipeline
Commands = Sequence[tuple[tuple[Any, ...], dict[str, Any]]]


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
