"""The synchronous store: one connection for all threads, usable after a fork, refused in an event loop."""

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

from ephemera import sync
from ephemera.embedded import Cluster, Valkey
from ephemera.errors import CannotConnect, ServerError, StoreClosed, SyncCallInEventLoop, Unavailable
from ephemera.sync import SyncStore


@pytest.fixture
def store(server: Valkey) -> Iterator[SyncStore]:
    """A synchronous store on the shared server."""
    with sync.connect(server.url) as opened:
        yield opened


def connections(store: SyncStore) -> int:
    """The number of our connections to the server."""
    return sum(b"name=ephemera" in line for line in store.call("CLIENT", "LIST").splitlines())


@pytest.mark.standalone("it counts the connections of one server")
def test_threads_get_their_own_replies_over_one_connection(store: SyncStore, key: str) -> None:
    """Sixteen threads each read back what they wrote, and one connection carried it all."""
    before = connections(store)

    def work(thread: int) -> bool:
        own = f"{key}:{thread}"
        return all(
            store.call("SET", own, f"{thread}:{i}", "EX", 60) == b"OK"
            and store.call("GET", own) == f"{thread}:{i}".encode()
            for i in range(200)
        )

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))
    assert connections(store) == before


def test_errors_reach_the_calling_thread(store: SyncStore, key: str) -> None:
    """A server's error is raised where the call was made, and the store keeps working."""
    store.call("SET", key, "text", "EX", 60)
    with pytest.raises(ServerError, match="WRONGTYPE"):
        store.call("LPUSH", key, "item")
    nothing: Any = None
    with pytest.raises(TypeError, match="SET: argument 2 is NoneType"):
        store.call("SET", key, nothing)
    assert store.call("GET", key) == b"text"


def test_blocking_commands_do_not_hold_up_other_threads(store: SyncStore, key: str) -> None:
    """A thread that waits in BLPOP gets what another pushes, through the same store."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.call, "BLPOP", key, 20)
        store.call("RPUSH", key, "item")
        assert waiting.result(timeout=20) == [key.encode(), b"item"]


def test_wait_runs_coroutines_of_the_store(store: SyncStore, key: str) -> None:
    """Any coroutine created from `aio` runs on the store's own loop and returns its result."""

    async def twice() -> int:
        await store.aio.call("INCR", key)
        reply = await store.aio.call("INCR", key)
        await store.aio.call("EXPIRE", key, 60)
        return int(reply)

    assert store.wait(twice()) == 2


async def test_call_on_an_event_loop_is_refused_and_says_what_to_do(server: Valkey) -> None:
    """A synchronous call inside a coroutine raises instead of blocking the loop."""
    store = await asyncio.to_thread(sync.connect(server.url).__enter__)
    with pytest.raises(SyncCallInEventLoop, match=r"use async with ephemera\.connect.*asyncio\.to_thread"):
        store.call("PING")
    with pytest.raises(SyncCallInEventLoop):
        store.wait(asyncio.sleep(0))
    await asyncio.to_thread(store.close)


def test_call_from_the_stores_own_loop_is_refused(store: SyncStore) -> None:
    """A coroutine that calls the synchronous store it runs on gets an error, not a deadlock."""

    async def reenter() -> None:
        store.call("PING")

    with pytest.raises(SyncCallInEventLoop):
        store.wait(reenter())


def test_closed_store_says_so_and_leaves_no_thread(server: Valkey) -> None:
    """After close the thread is gone and calls raise `StoreClosed`; closing twice is fine."""
    store = sync.connect(server.url)
    store.call("PING")
    store.close()
    store.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "ephemera-sync"]
    with pytest.raises(StoreClosed):
        store.call("PING")


def test_failed_connect_leaves_no_thread() -> None:
    """A server that is not running gives a clear error and leaves no thread behind."""
    with pytest.raises(CannotConnect, match="Is it running"):
        sync.connect("redis://127.0.0.1:1").call("PING")
    assert not [thread for thread in threading.enumerate() if thread.name == "ephemera-sync"]


def test_down_server_fails_every_thread_at_once(server: Valkey) -> None:
    """With `required=False` and no server, calls of all threads raise `Unavailable`, none waits."""
    with sync.connect("redis://127.0.0.1:1", required=False) as store:

        def ask(_: int) -> bool:
            with pytest.raises(Unavailable):
                store.call("GET", "any")
            return True

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(80)))


def test_cluster_works_through_the_same_store(cluster: Cluster, key: str) -> None:
    """Threads on a cluster write to and read from every slot."""
    with sync.connect(cluster.url) as store, ThreadPoolExecutor(8) as pool:
        keys = [f"{key}:{i}" for i in range(100)]
        list(pool.map(lambda one: store.call("SET", one, one, "EX", 60), keys))
        assert list(pool.map(lambda one: store.call("GET", one), keys)) == [one.encode() for one in keys]


def test_the_reply_of_an_interrupted_call_is_dropped(store: SyncStore, key: str) -> None:
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
from ephemera import sync
store = sync.connect({server.url!r})
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
assert store.call("CLIENT", "ID") == mine
assert store.call("GET", {key!r}) == b"500"
store.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
