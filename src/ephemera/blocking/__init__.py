"""Blocking calls to a store: connections that the callers drive, and an event loop in a thread for the rest.

`BlockingStore.call` sends a command, and `BlockingStore.complete` runs an operation of an `accessor`, both in
the calling thread. `BlockingStore.wait` runs a coroutine of the async store, `aio`, on the loop and blocks
until it is done; `BlockingStore.forward` runs one for a coroutine on another event loop. `Block` enters an
`async with` block whose body is synchronous code. This is the engine below `ephemera.sync`, whose typed API
is what synchronous programs use.

A store connects when it is first used. After a fork (Celery's prefork pool) the child starts a thread and
connections of its own; the parent keeps its own. Pattern objects made from `aio` before a fork belong to the
parent too: make them where they are used. Calls from the thread of a running event loop are refused, because
they would block that loop.

A signal handler may raise in the middle of a call (Ctrl-C, a soft time limit). What the call sent may have
been executed; its reply is dropped, a coroutine given to `wait` is cancelled, and later calls are unaffected.
A signal handler may call the store itself, too.
"""

from ephemera.blocking._block import HOLDER, Block
from ephemera.blocking._callbacks import Callback
from ephemera.blocking._store import BlockingStore, connect

__all__ = ["HOLDER", "Block", "BlockingStore", "Callback", "connect"]
