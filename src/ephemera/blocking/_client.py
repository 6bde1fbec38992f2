"""A client for accessors in synchronous code: awaiting a reply blocks the calling thread.

Accessors are coroutines that wait for nothing but replies. With this client they need no event loop: the
thread runs the coroutine itself (`AccessorBinder.complete`), and the first reply that it awaits has the
commands issued so far sent in one write. So a batch is one round trip, as it is on the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ephemera.blocking._direct_connections import SHARED
from ephemera.blocking._loop_thread import LoopThread
from ephemera.errors import ServerError
from ephemera.keyspace import Catalogue, Keyspace, Role
from ephemera.wire import Arg, Client, Script, is_multiplexed, pack_here, seconds_left, within

if TYPE_CHECKING:
    from ephemera.blocking._store import BlockingStore

T = TypeVar("T")


class Pending(threading.local):
    """The commands of a thread's current operation that have not been sent."""

    def __init__(self) -> None:
        self.batch: list[Reply] = []


class Reply:
    """The reply to a command, which is sent when it is awaited, at the latest."""

    source: tuple[Any, ...] = ()
    """What was packed, if the loop cannot send it packed: a script, its keys and its arguments."""
    is_done = False
    result: Any = None
    error: BaseException | None = None

    def __init__(self, client: BlockingClient, packed: bytes) -> None:
        self._client = client
        self.packed = packed

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()  # makes this a generator, which never yields
        if not self.is_done:
            self._client.flush(self)
        if self.error is not None:
            raise self.error
        return self.result

    def cancel(self) -> None:
        """Do nothing: what was not sent is dropped with its operation."""

    def settle(self, outcome: Any) -> None:
        """Take over the outcome: a reply or an error."""
        if isinstance(outcome, BaseException):
            self.error = outcome
        else:
            self.result = outcome
        self.is_done = True

    def send_on(self, client: Client) -> Awaitable[Any]:
        """Send it on the loop."""
        return client.run(*self.source) if self.source else client.send(self.packed)


class BlockingClient:
    """The client of a role, as accessors use it."""

    def __init__(self, binder: AccessorBinder, role: Role) -> None:
        self._binder = binder
        self._role: Role = role
        self._pending = binder.pending

    @property
    def is_cluster(self) -> bool:
        """Whether keys are spread over several servers by slot."""
        client: Client = self._binder.running().store.client(self._role)
        return client.is_cluster

    def call(self, *args: Arg) -> Reply:
        """Issue a command; one that cannot share a connection is sent now."""
        if is_multiplexed(args):
            reply = Reply(self, pack_here(args))
            self._pending.batch.append(reply)
            return reply
        reply = Reply(self, b"")
        thread = self._binder.running()
        reply.settle(thread.wait_for(_call(thread.store.client(self._role), args)))
        return reply

    def run(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Reply:
        """Issue a script."""
        reply = Reply(self, pack_here(("EVALSHA", script.sha, len(keys), *keys, *args)))
        reply.source = (script, keys, args)
        self._pending.batch.append(reply)
        return reply

    def send(self, packed: bytes) -> Reply:
        """Issue a packed command."""
        reply = Reply(self, packed)
        self._pending.batch.append(reply)
        return reply

    def exchange(self, packed: bytes) -> Any:
        """Send a packed command, other than a script, and return its reply."""
        store = self._binder.store
        if asyncio._get_running_loop() is not None or store.ended_blocks:
            store.check_thread()
        thread, left = store.running(), seconds_left()
        if left is None:
            outcome = thread.direct[self._role].exchange(packed)
            if outcome is not SHARED:
                return outcome
        reply = Reply(self, packed)
        self._share(thread, [reply], left)
        if reply.error is not None:
            raise reply.error
        return reply.result

    def flush(self, reply: Reply) -> None:
        """Send what this thread's operation has issued, and wait for all replies."""
        pending = self._pending
        batch, pending.batch = pending.batch, []
        thread, left = self._binder.running(), seconds_left()
        direct = thread.direct[self._role]
        if len(batch) < 2:
            outcome = SHARED if left is not None else direct.exchange(reply.packed)
            if outcome is SHARED:
                self._share(thread, [reply], left)
            else:
                reply.result, reply.is_done = outcome, True
            return
        outcomes: Any = SHARED if left is not None else direct.exchange_all([each.packed for each in batch])
        if outcomes is SHARED:
            self._share(thread, batch, left)
            return
        for each, outcome in zip(batch, outcomes, strict=True):
            each.settle(outcome)
        unknown = [each for each in batch if _lacks_script(each)]
        if unknown:
            self._share(thread, unknown, left)

    def _share(self, thread: LoopThread, batch: list[Reply], left: float | None) -> None:
        """Send a batch on the loop's connection."""
        work = _ask_all(thread.store.client(self._role), batch)
        thread.wait_for(work if left is None else within(left, work))


class AccessorBinder:
    """Binds keyspaces to blocking clients, for all threads and processes of a store; `bind` takes it."""

    def __init__(self, catalogues: tuple[Catalogue, ...], store: BlockingStore) -> None:
        self.catalogues = catalogues
        self.store = store
        self.running = store.running
        self.pending = Pending()
        self._clients = {role: BlockingClient(self, role) for role in _ROLES}

    def declares(self, keyspace: Keyspace[Any]) -> bool:
        """Whether a keyspace is in one of the store's catalogues."""
        return any(keyspace in catalogue for catalogue in self.catalogues)

    def client(self, role: Role = "cache") -> BlockingClient:
        """The client of a role."""
        return self._clients[role]

    def complete(self, operation: Coroutine[Any, Any, T]) -> T:
        """Run an accessor's operation in this thread."""
        pending = self.pending
        outer, pending.batch = pending.batch, []  # not empty in a signal handler
        try:
            operation.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            pending.batch = outer
        operation.close()
        raise RuntimeError("an operation of an accessor awaited something other than replies")


_ROLES: tuple[Role, ...] = ("cache", "queue")


def _lacks_script(reply: Reply) -> bool:
    return isinstance(reply.error, ServerError) and reply.error.code == "NOSCRIPT"


async def _call(client: Client, args: tuple[Arg, ...]) -> Any:
    return await client.call(*args, timeout=seconds_left())


async def _ask_all(client: Client, batch: list[Reply]) -> None:
    """Send a batch in one tick, so in one write, and settle its replies."""
    sent: list[Any] = []
    for reply in batch:
        reply.error = None
        try:
            sent.append(asyncio.ensure_future(reply.send_on(client)))
        except Exception as problem:  # the server is down
            sent.append(problem)
    for reply, outcome in zip(batch, sent, strict=True):
        try:
            reply.settle(outcome if isinstance(outcome, Exception) else await outcome)
        except Exception as problem:
            reply.settle(problem)
