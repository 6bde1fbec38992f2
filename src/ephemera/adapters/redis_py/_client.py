"""`Redis` and its pipelines: commands that may share a connection do, all others run as in redis-py.

The functions here take the place of methods of redis-py's classes: in the subclasses below, and after
`install()` in redis-py's classes themselves. So they call redis-py's own methods by name, not by `super()`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from redis.asyncio import client as stock
from redis.client import EMPTY_RESPONSE, NEVER_DECODE

from ephemera.adapters.redis_py._commands import (
    CHANGES_CONNECTION,
    NESTS_ERRORS,
    Words,
    one_word,
    redis_error,
    shared_words,
    with_redis_errors,
)
from ephemera.adapters.redis_py._shared_connection import LINKS, SharedConnection, links_of
from ephemera.errors import EphemeraError, LoopMisuse, OutcomeUnknown, ServerError, StoreClosed, Unavailable

_execute_stock = stock.Redis.execute_command
_execute_pipeline_stock = stock.Pipeline.execute
_reset_stock = stock.Pipeline.reset
_get = dict.get
_INTERNAL_OPTIONS = frozenset((NEVER_DECODE, EMPTY_RESPONSE, "keys"))
"""Options that are for redis-py itself, not for a callback."""
_NOT_SENT = (AttributeError, KeyError, LoopMisuse, StoreClosed, Unavailable)


async def execute_command(self: Any, *args: Any, **options: Any) -> Any:
    """Run a command on the shared connection, or on one of its own if it needs that."""
    name = args[0]
    words = args if name in one_word else shared_words(args)
    if words is None or self.single_connection_client or self.connection is not None:
        return await _execute_on_its_own(self, args, options)
    # The latest connection is that of the running loop, nearly always: asking which loop runs asks the kernel
    # for the process id, and costs 10 % of a GET among 50 tasks. The wire refuses the calls of other threads.
    try:
        shared = self.connection_pool.__dict__[LINKS].latest
        sent = shared.send(shared.pack(words)) if shared.is_running() else None
    except _NOT_SENT:
        sent = None
    if sent is None:
        return await _open_and_execute(self, words, args, options)
    try:
        reply = await sent
    except EphemeraError as error:
        return await _recover(self, error, args, options)
    outcome = _parsed(self, shared, name, reply, options)
    return outcome if outcome is reply or not hasattr(outcome, "__await__") else await outcome


async def _open_and_execute(client: Any, words: Words, args: Words, options: dict[str, Any]) -> Any:
    """Run a command on the shared connection of the running loop, which may have to be opened."""
    shared = await _open(client.connection_pool)
    if shared is None:
        return await _execute_stock(client, *args, **options)
    try:
        reply = await shared.send(shared.pack(words))
    except EphemeraError as error:
        return await _recover(client, error, args, options)
    outcome = _parsed(client, shared, args[0], reply, options)
    return await outcome if hasattr(outcome, "__await__") else outcome


def _parsed(client: Any, shared: SharedConnection, name: Any, reply: Any, options: dict[str, Any]) -> Any:
    """A reply as redis-py's `parse_response` would return it, or an awaitable of that."""
    if shared.decode is not None and NEVER_DECODE not in options:
        reply = shared.decode(reply)
    if name in NESTS_ERRORS:
        reply = with_redis_errors(reply)
    # Names of one word are in upper case, as the keys are: redis-py's own `get` would convert them again,
    # which costs 5 % of a GET among 500 tasks.
    callbacks = client.response_callbacks
    callback = _get(callbacks, name) if name in one_word else callbacks.get(name)
    if callback is None:
        return reply
    for internal in _INTERNAL_OPTIONS.intersection(options):
        del options[internal]
    return callback(reply, **options)


async def _open(pool: Any) -> SharedConnection | None:
    links = links_of(pool)
    return None if links is None else await links.open()


async def _execute_on_its_own(client: Any, args: Words, options: dict[str, Any]) -> Any:
    """Run a command on a connection of redis-py's; one that it has changed is used from then on."""
    reply = await _execute_stock(client, *args, **options)
    if client.connection is None and str(args[0]).upper() in CHANGES_CONNECTION:
        links = links_of(client.connection_pool)
        if links is not None:
            links.is_stock = True
            await links.aclose()
    return reply


async def _recover(client: Any, error: EphemeraError, args: Words, options: dict[str, Any]) -> Any:
    """Raise redis-py's error for a failure, or try again as its retry policy says.

    A command that was certainly not executed runs on a connection of redis-py's, which connects, retries and
    fails as always. So does one that may have been executed, if the policy repeats such commands.
    """
    if isinstance(error, ServerError) and EMPTY_RESPONSE in options:
        return options[EMPTY_RESPONSE]
    if not isinstance(error, (Unavailable, StoreClosed)):
        failure = redis_error(error)
        retry = _retry_policy(client.connection_pool)
        if not (isinstance(failure, retry._supported_errors) and retry.get_retries() != 0):
            raise failure from (error if isinstance(error, OutcomeUnknown) else None)
        await asyncio.sleep(retry._backoff.compute(1))
    return await _execute_stock(client, *args, **options)


def _retry_policy(pool: Any) -> Any:
    return pool.make_connection().retry


class BatchConnection:
    """Stands for a connection while redis-py runs a pipeline, and sends it on the shared one.

    Its commands are sent together, without any of another caller between them: a MULTI block stays whole.
    """

    def __init__(self, shared: SharedConnection, retry: Any = None) -> None:
        self.retry = retry
        self._links = shared.links
        self._shared = shared
        self._replies: deque[Any] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._links.template, name)

    def pack_command(self, *args: Any) -> list[bytes]:
        """Pack a command."""
        return self.pack_commands((args,))

    def pack_commands(self, commands: Iterable[Words]) -> list[bytes]:
        """Pack commands, each by itself."""
        return [self._links.pack(shared_words(tuple(args)) or tuple(args)) for args in commands]

    async def send_command(self, *args: Any, **_options: Any) -> None:
        """Send a command, and keep its reply for `read_response`."""
        await self.send_packed_command(self.pack_command(*args))

    async def send_packed_command(self, commands: list[bytes], check_health: bool = True) -> None:
        """Send commands as one batch, and keep their replies for `read_response`."""
        del check_health
        try:
            shared = await self._links.open()
            self._replies.extend(await (shared or self._shared).exchange(commands))
        except EphemeraError as error:
            raise redis_error(error) from error

    async def read_response(self, disable_decoding: bool = False, **_options: Any) -> Any:
        """The next reply; raises it if it is an error."""
        reply = self._replies.popleft()
        if isinstance(reply, EphemeraError):
            raise redis_error(reply) from None
        if self._links.decode is not None and not disable_decoding:
            reply = self._links.decode(reply)
        return with_redis_errors(reply)

    async def disconnect(self, **_options: Any) -> None:
        """Drop the replies of a failed batch; the connection is shared."""
        self._replies.clear()

    def should_reconnect(self) -> bool:
        """Never: the shared connection reconnects by itself."""
        return False


def _may_share(stack: list[tuple[Words, Any]]) -> bool:
    return bool(stack) and all(shared_words(args) is not None for args, _ in stack)


async def execute_pipeline(self: Any, raise_on_error: bool = True) -> list[Any]:
    """Run a pipeline on the shared connection, unless it watches keys or has commands that cannot share."""
    if self.connection is None and not self.watching and _may_share(self.command_stack):
        shared = await _open(self.connection_pool)
        if shared is not None and shared.up:
            self.connection = BatchConnection(shared, _retry_policy(self.connection_pool))
    replies: list[Any] = await _execute_pipeline_stock(self, raise_on_error)
    return replies


async def reset_pipeline(self: Any) -> None:
    """Forget the queued commands, and return the connection to its pool if it has one of its own."""
    if isinstance(self.connection, BatchConnection):
        self.connection = None
    await _reset_stock(self)


class Pipeline(stock.Pipeline):
    """A pipeline of `Redis`: as redis-py's, on the shared connection."""

    execute = execute_pipeline
    reset = reset_pipeline


class Redis(stock.Redis):
    """A drop-in for `redis.asyncio.Redis` that sends the commands of all tasks over one connection."""

    execute_command = execute_command

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """Queue commands and send them together, by default as one transaction."""
        return Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
