"""The synchronous API: the same store, accessors and patterns for Celery tasks, Flask, Django and scripts.

    with sync.connect("redis://localhost", catalogue) as store:
        store[SESSION].get(session_id=sid)
        with store[LOCKS].hold(order_id=7) as held:
            ...

`store[X]` has the methods of the async store's, without `await`: `async with` becomes `with`, `async for`
becomes `for`, and loaders and handlers are plain functions. There is no second implementation. A synchronous
class is made from the async one when it is first used, and its types are generated, in `_bound.pyi`.
`ephemera.blocking` is the engine: it says what holds for forks, signals, event loops and closing.

*Functions that you pass* run in the thread whose call waits for them, so they find its database session or
Flask's `g`. Where no call waits (a refresh in the background, the handler of a consumer), a pool of threads
runs them.

*A lost lock* cannot interrupt a thread. Instead, the thread's next call to the store raises `LockLost`, once,
and the end of its `with` block does at the latest. Before work that is not a call to the store, look at
`held.lost`.

*Under gevent* (`monkey.patch_all()`), it works with greenlets in the place of threads, and needs uvloop.

*Objects survive a fork*: what `store[X]` returned before it works in the child, on the child's connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ephemera.blocking import BlockingStore
from ephemera.keyspace import Catalogue
from ephemera.sync._bound import BoundItems
from ephemera.sync._sync_classes import make_on_loop
from ephemera.wire import Arg, ChannelKind, Script

if TYPE_CHECKING:
    from ephemera.sync._bound import Subscription  # types alone: see `_bound.pyi`

__all__ = ["SyncStore", "connect"]


def connect(url: str, *catalogues: Catalogue, **options: Any) -> SyncStore:
    """A store for synchronous code; takes the arguments of `ephemera.connect`.

    It connects when it is first used, or when a `with` block is entered, at whose end it is closed.
    """
    return SyncStore(BlockingStore(url, catalogues, options))


class SyncStore(BoundItems):
    """A store whose calls block until the reply; share one among all threads.

    `store[X]` is the accessor of a keyspace, or the runtime object of a pattern.
    """

    def __init__(self, blocking: BlockingStore) -> None:
        super().__init__(blocking)
        self._blocking = blocking

    def __enter__(self) -> Self:
        self._blocking.running()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, *args: Arg, timeout: float | None = None) -> Any:
        """Send a command and return its reply; after `timeout` seconds it raises `DeadlineExceeded`."""
        return self._blocking.call(*args, timeout=timeout)

    def run(
        self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = (), *, timeout: float | None = None
    ) -> Any:
        """Run a script atomically on its keys.

        Args:
            script: The script, as `Script.load` returns it.
            keys: Its keys, all of one cluster slot.
            args: Its arguments.
            timeout: As of `call`, in seconds.

        """
        return self._blocking.call("EVALSHA", script.sha, len(keys), *keys, *args, timeout=timeout)

    def subscribe(self, *names: str | bytes, kind: ChannelKind = "channel") -> Subscription:
        """Subscribe to channels: `with store.subscribe("news") as messages: for message in messages`.

        `kind` is "channel", "pattern" or "shard" (a sharded channel of a cluster).
        """
        subscription: Subscription = make_on_loop(
            self._blocking, lambda: self._blocking.aio.subscribe(*names, kind=kind)
        )
        return subscription

    def close(self) -> None:
        """Disconnect: calls that wait, and all later ones, raise `StoreClosed`."""
        self._blocking.close()
