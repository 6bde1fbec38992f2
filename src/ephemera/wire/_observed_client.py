"""A client whose commands and scripts are observed, for tracing.

It wraps another client. A store without an observer uses its clients directly, so observing costs nothing
while it is off. Subscriptions, tracking and commands to single nodes (`nodes`) are not observed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import Any, Protocol

from ephemera.wire._client import Client
from ephemera.wire._commands import Arg, command_name, first_key
from ephemera.wire._connection import ReplyHandler
from ephemera.wire._node_client import NodeClient
from ephemera.wire._packed_commands import unpack_command
from ephemera.wire._scripts import PreparedScript, Script

Finish = Callable[[BaseException | None], None]
"""Called once with the error of a command, or None when it succeeded."""


class Observer(Protocol):
    """Observes every command and script of a client."""

    def start(self, name: str, key: Arg | None) -> Finish:
        """A command or script of this name, with this first key, is about to be sent."""


class ObservedClient:
    """Another client, with an observer of everything it sends; see `Client` for what its methods do."""

    def __init__(self, client: Client, observer: Observer) -> None:
        self._client = client
        self._start = observer.start
        self.subscribe = client.subscribe
        self.track = client.track
        self.aclose = client.aclose

    def __repr__(self) -> str:
        return repr(self._client)

    @property
    def is_cluster(self) -> bool:
        """Whether keys are spread over several servers by slot."""
        return self._client.is_cluster

    @property
    def up(self) -> bool:
        """Whether it is connected."""
        return self._client.up

    @property
    def connection_count(self) -> int:
        """How often its servers were connected to."""
        return self._client.connection_count

    def call(self, *args: Arg, timeout: float | None = None) -> Awaitable[Any]:
        """Send a command and return the future of its reply."""
        finish = self._start(*_describe(args))
        return _finished(finish, lambda: self._client.call(*args, timeout=timeout))

    def run(
        self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = (), *, timeout: float | None = None
    ) -> Awaitable[Any]:
        """Run a script atomically on its keys."""
        finish = self._start(script.name, keys[0] if keys else None)
        return _finished(finish, lambda: self._client.run(script, keys, args, timeout=timeout))

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        """Send a packed command."""
        finish = self._start(*_describe_packed(packed))
        try:
            reply = self._client.send(packed)
        except BaseException as error:
            finish(error)
            raise
        reply.add_done_callback(lambda done: finish(_error_of(done)))
        return reply

    def send_to(self, reply: ReplyHandler, packed: bytes) -> None:
        """As `send`, but the outcome goes to `reply`."""
        finish = self._start(*_describe_packed(packed))
        try:
            self._client.send_to(_ObservedReply(finish, reply), packed)
        except BaseException as error:
            finish(error)
            raise

    def nodes(self) -> Sequence[NodeClient]:
        """The masters, not observed."""
        return self._client.nodes()

    def read_nodes(self) -> Sequence[NodeClient]:
        """The servers that reads go to, not observed."""
        return self._client.read_nodes()


class _ObservedReply:
    """A reply handler that finishes its observation after the reply.

    The reply is handled in its sender's context, so that what the handler sends in turn is attributed to the
    same caller.
    """

    __slots__ = ("_context", "_finish", "_reply")

    def __init__(self, finish: Finish, reply: ReplyHandler) -> None:
        self._finish = finish
        self._reply = reply
        self._context = copy_context()

    def done(self) -> bool:
        return self._reply.done()

    def set_result(self, result: Any, /) -> None:
        self._context.run(self._reply.set_result, result)
        self._end(None)

    def set_exception(self, exception: BaseException, /) -> None:
        self._context.run(self._reply.set_exception, exception)
        self._end(exception)

    def _end(self, error: BaseException | None) -> None:
        try:
            self._finish(error)
        except Exception as problem:  # the observer's own: it must not cost other callers their replies
            report = {"message": "an observer of commands failed", "exception": problem}
            asyncio.get_running_loop().call_exception_handler(report)


def _describe(args: tuple[Arg, ...]) -> tuple[str, Arg | None]:
    """The name of a command, and its first key."""
    name = command_name(args) if args else ""
    return name, first_key(name, args)


def _describe_packed(packed: bytes) -> tuple[str, Arg | None]:
    if isinstance(packed, PreparedScript):
        return packed.script.name, packed.key
    return _describe(unpack_command(packed))


def _finished(finish: Finish, send: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
    """Send, and finish the observation with the reply; the caller gets the future it would get without."""
    try:
        reply = send()
    except BaseException as error:
        finish(error)
        raise
    if not isinstance(reply, asyncio.Future):
        return _awaited(finish, reply)
    reply.add_done_callback(lambda done: finish(_error_of(done)))
    return reply


def _error_of(done: asyncio.Future[Any]) -> BaseException | None:
    return asyncio.CancelledError() if done.cancelled() else done.exception()


async def _awaited(finish: Finish, reply: Awaitable[Any]) -> Any:
    try:
        answer = await reply
    except BaseException as error:
        finish(error)
        raise
    finish(None)
    return answer
