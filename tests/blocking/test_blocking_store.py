"""The synchronous store: few connections for all threads, usable after a fork, refused in an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ephemera import blocking
from ephemera.blocking import BlockingStore
from ephemera.embedded import Cluster, Valkey
from ephemera.errors import CannotConnect, ServerError, StoreClosed, SyncCallInEventLoop, Unavailable


@pytest.fixture
def store(server: Valkey) -> Iterator[BlockingStore]:
    """A synchronous store on the shared server."""
    with blocking.connect(server.url) as opened:
        yield opened


def connections(store: BlockingStore) -> int:
    """The number of our connections to the server."""
    return sum(b"name=ephemera" in line for line in store.call("CLIENT", "LIST").splitlines())


def loop_threads() -> set[threading.Thread]:
    """The threads of all stores of this process; other tests may have left theirs open."""
    return {thread for thread in threading.enumerate() if thread.name == "ephemera-sync"}


@pytest.mark.standalone("it counts the connections of one server")
def test_threads_get_their_own_replies_over_few_connections(store: BlockingStore, key: str) -> None:
    """Forty threads each read back what they wrote, over the loop's connection and at most 16 others."""

    def work(thread: int) -> bool:
        own = f"{key}:{thread}"
        return all(
            store.call("SET", own, f"{thread}:{i}", "EX", 60) == b"OK"
            and store.call("GET", own) == f"{thread}:{i}".encode()
            for i in range(200)
        )

    before = connections(store)  # ours, and those of stores that other tests have opened
    with ThreadPoolExecutor(40) as pool:
        assert all(pool.map(work, range(40)))
    assert connections(store) <= before + 16


def test_errors_reach_the_calling_thread(store: BlockingStore, key: str) -> None:
    """A server's error is raised where the call was made, and the store keeps working."""
    store.call("SET", key, "text", "EX", 60)
    with pytest.raises(ServerError, match="WRONGTYPE"):
        store.call("LPUSH", key, "item")
    nothing: Any = None
    with pytest.raises(TypeError, match="SET: argument 2 is NoneType"):
        store.call("SET", key, nothing)
    assert store.call("GET", key) == b"text"


def test_blocking_commands_do_not_hold_up_other_threads(store: BlockingStore, key: str) -> None:
    """A thread that waits in BLPOP gets what another pushes, through the same store."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.call, "BLPOP", key, 20)
        store.call("RPUSH", key, "item")
        assert waiting.result(timeout=20) == [key.encode(), b"item"]


def test_wait_runs_coroutines_of_the_store(store: BlockingStore, key: str) -> None:
    """Any coroutine created from `aio` runs on the store's own loop and returns its result."""

    async def twice() -> int:
        await store.aio.call("INCR", key)
        reply = await store.aio.call("INCR", key)
        await store.aio.call("EXPIRE", key, 60)
        return int(reply)

    assert store.wait(twice()) == 2


async def test_call_on_an_event_loop_is_refused_and_says_what_to_do(server: Valkey) -> None:
    """A synchronous call inside a coroutine raises instead of blocking the loop."""
    store = await asyncio.to_thread(blocking.connect(server.url).__enter__)
    with pytest.raises(SyncCallInEventLoop, match=r"use async with ephemera\.connect.*asyncio\.to_thread"):
        store.call("PING")
    with pytest.raises(SyncCallInEventLoop):
        store.wait(asyncio.sleep(0))
    await asyncio.to_thread(store.close)


def test_call_from_the_stores_own_loop_is_refused(store: BlockingStore) -> None:
    """A coroutine that calls the synchronous store it runs on gets an error, not a deadlock."""

    async def reenter() -> None:
        store.call("PING")

    with pytest.raises(SyncCallInEventLoop):
        store.wait(reenter())


def test_closed_store_says_so_and_leaves_no_thread(server: Valkey) -> None:
    """After close the thread is gone and calls raise `StoreClosed`; closing twice is fine."""
    before = loop_threads()
    store = blocking.connect(server.url)
    store.call("PING")
    store.close()
    store.close()
    assert loop_threads() <= before
    with pytest.raises(StoreClosed):
        store.call("PING")


def test_failed_connect_leaves_no_thread() -> None:
    """A server that is not running gives a clear error and leaves no thread behind."""
    before = loop_threads()
    with pytest.raises(CannotConnect, match="Is it running"):
        blocking.connect("redis://127.0.0.1:1").call("PING")
    assert loop_threads() <= before


def test_down_server_fails_every_thread_at_once(server: Valkey) -> None:
    """With `required=False` and no server, calls of all threads raise `Unavailable`, none waits."""
    with blocking.connect("redis://127.0.0.1:1", required=False) as store:

        def ask(_: int) -> bool:
            with pytest.raises(Unavailable):
                store.call("GET", "any")
            return True

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(80)))


def test_cluster_works_through_the_same_store(cluster: Cluster, key: str) -> None:
    """Threads on a cluster write to and read from every slot."""
    with blocking.connect(cluster.url) as store, ThreadPoolExecutor(8) as pool:
        keys = [f"{key}:{i}" for i in range(100)]
        list(pool.map(lambda one: store.call("SET", one, one, "EX", 60), keys))
        assert list(pool.map(lambda one: store.call("GET", one), keys)) == [one.encode() for one in keys]


def test_the_reply_of_an_interrupted_call_is_dropped(store: BlockingStore, key: str) -> None:
    """The late reply of a call that a signal interrupted does not reach the next call."""

    def interrupt(number: int, frame: object) -> None:
        raise InterruptedError("a soft time limit")

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(InterruptedError):
            store.call("BLPOP", key, 1)
    finally:
        signal.signal(signal.SIGALRM, before)
    store.call("RPUSH", key, "late")
    assert [store.call("ECHO", number) for number in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.standalone("it asks one server for what is its own: CLIENT")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_work_and_the_parent_keeps_working(server: Valkey, key: str) -> None:
    """After fork, children use connections of their own at once, and the parent's is unaffected."""
    script = f"""
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # about fork with threads, which is what we test
from ephemera import blocking
store = blocking.connect({server.url!r})
store.call("SET", {key!r}, 0, "EX", 60)
mine = store.call("CLIENT", "ID")
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        for _ in range(100):
            store.call("INCR", {key!r})
        os._exit(0 if store.call("CLIENT", "ID") != mine else 1)
    children.append(pid)
for _ in range(100):
    store.call("INCR", {key!r})
codes = [os.waitpid(pid, 0)[1] for pid in children]
assert codes == [0] * 4, codes
assert store.call("CLIENT", "ID") == mine  # of the loop's connection
assert store.call("GET", {key!r}) == b"500"
store.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_coroutine_of_another_loop_is_served(server: Valkey) -> None:
    """`forward` runs work on the store's loop, passes on results and errors, and does not block this loop."""
    store = blocking.connect(server.url)

    async def work(command: str) -> tuple[object, object]:
        return await store.aio.call(command), asyncio.get_running_loop()

    try:
        reply, loop = await store.forward(work("DBSIZE"))
        assert isinstance(reply, int)
        assert loop is not asyncio.get_running_loop()
        with pytest.raises(ServerError, match="unknown command"):
            await store.forward(work("NOSUCH"))
    finally:
        await asyncio.to_thread(store.close)
    with pytest.raises(StoreClosed):
        await store.forward(work("DBSIZE"))


async def test_a_forwarded_coroutine_ends_with_its_caller_and_with_its_store(server: Valkey) -> None:
    """Cancelling the caller cancels the work; closing the store ends the wait with `StoreClosed`."""
    store = blocking.connect(server.url)
    started, cancelled = threading.Event(), threading.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    for ending in ("cancel", "close"):
        started.clear()
        cancelled.clear()
        caller = asyncio.ensure_future(store.forward(endless()))
        assert await asyncio.to_thread(started.wait, 30)
        if ending == "cancel":
            caller.cancel()
        else:
            await asyncio.to_thread(store.close)
        with pytest.raises(asyncio.CancelledError if ending == "cancel" else StoreClosed):
            await caller
        assert await asyncio.to_thread(cancelled.wait, 30)
