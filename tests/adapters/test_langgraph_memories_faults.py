"""Memories under attack: many writers, evictions in between, a server that dies, a process that is killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from uuid import uuid4

import pytest
from langgraph.store.base import GetOp, PutOp

from ephemera import Catalogue, fixed, keyspace, sync
from ephemera.adapters.langgraph import GraphMemories
from ephemera.embedded import Valkey, valkey
from ephemera.errors import ConnectionFailed
from ephemera.keyspace import Store
from tests.wire.conditions import eventually

CATALOGUE = Catalogue("test-memories-faults")
MEMORIES = GraphMemories(CATALOGUE, "memory:{namespace}", lifetime=fixed(hours=1))


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with memories, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE) as opened:
        yield opened


async def test_a_batch_into_a_namespace_is_one_step(store: Store) -> None:
    """Writers put pairs of equal values; a reader never sees the halves of two writers."""
    ours, where, writers = store[MEMORIES], (uuid4().hex, "pair"), 20

    async def write(number: int) -> None:
        for turn in range(10):
            value = {"by": f"{number}-{turn}"}
            await ours.abatch([PutOp(where, "left", value), PutOp(where, "right", value)])

    writing = asyncio.gather(*map(write, range(writers)))
    while not writing.done():
        left, right = await ours.abatch([GetOp(where, "left"), GetOp(where, "right")])
        assert (left and left.value) == (right and right.value)  # type: ignore[union-attr]
    await writing


async def test_concurrent_writers_lose_nothing(store: Store) -> None:
    """Five hundred puts into fifty new namespaces at once: every item is found from above."""
    ours, root = store[MEMORIES], uuid4().hex
    spaces = [(root, f"user{number % 10}", f"topic{number}") for number in range(50)]
    await asyncio.gather(*(ours.aput(space, f"{key}", {"n": key}) for space in spaces for key in range(10)))
    assert len(await ours.asearch((root,), limit=1000)) == 500
    assert await ours.alist_namespaces(prefix=(root,), limit=1000) == sorted(spaces)
    assert len(await ours.asearch((root, "user3"), limit=1000)) == 50


async def test_a_namespace_that_is_emptied_and_filled_at_once_stays_listed(store: Store) -> None:
    """No deletion hides an item that was put after it, however they interleave."""
    ours, root = store[MEMORIES], uuid4().hex

    async def churn(number: int) -> None:
        where = (root, f"n{number}")
        for _ in range(10):
            await asyncio.gather(
                ours.adelete(where, "k"), ours.aput(where, "k", {}), ours.alist_namespaces(prefix=(root,))
            )
        await ours.aput(where, "k", {})

    await asyncio.gather(*map(churn, range(10)))
    assert len(await ours.alist_namespaces(prefix=(root,))) == 10


async def test_evictions_leave_whole_namespaces(server: Valkey) -> None:
    """Random keys vanish between writes: an item has the value put last, or is gone with its namespace."""
    chosen, root = Random(7), uuid4().hex
    async with keyspace.connect(server.url, CATALOGUE) as opened:
        ours, expected = opened[MEMORIES], dict[str, set[str]]()
        for turn in range(200):
            label, key = f"n{chosen.randrange(5)}", f"k{chosen.randrange(5)}"
            await ours.aput((root, label), key, {"is": f"{label}{key}"})
            expected.setdefault(label, set()).add(key)
            if turn % 3 == 0:
                victim = f"n{chosen.randrange(5)}"
                await opened.call("DEL", MEMORIES.keyspace.key(namespace=f"{root}.{victim}"))
                expected.pop(victim, None)
            if turn % 7 == 0:  # an index: the namespaces below are found when they are written again
                await opened.call("DEL", MEMORIES.namespaces.keyspace.key(parent=root))
        for label in [f"n{number}" for number in range(5)]:
            found = {item.key: item.value for item in await ours.asearch((root, label))}
            assert found == {key: {"is": f"{label}{key}"} for key in expected.get(label, ())}


async def test_a_dead_server_is_an_error_and_a_new_one_is_empty() -> None:
    """Calls fail at once while it is down, even in threads; afterwards everything works, from nothing."""
    with valkey() as victim:
        async with keyspace.connect(victim.url, CATALOGUE) as opened:
            ours = opened[MEMORIES]
            await ours.aput(("a",), "k", {"n": 1})
            victim.kill()
            await eventually(lambda: not opened.client().up)
            for call in (ours.aget(("a",), "k"), ours.asearch(()), ours.aput(("a",), "k", {})):
                with pytest.raises(ConnectionFailed):
                    await call
            with pytest.raises(ConnectionFailed):
                await asyncio.to_thread(ours.get, ("a",), "k")
            await asyncio.to_thread(victim.restart)
            await eventually(lambda: opened.client().up)
            assert await ours.asearch(()) == []
            await ours.aput(("a",), "k", {"n": 2})
            assert await ours.alist_namespaces() == [("a",)]


def test_threads_share_a_synchronous_store(url: str) -> None:
    """Sixteen threads each read back what they wrote, and search below their own label."""
    root = uuid4().hex
    with sync.connect(url, CATALOGUE) as opened:
        ours, ready = opened[MEMORIES], threading.Barrier(16)

        def work(number: int) -> int:
            ready.wait(60)
            for key in range(20):
                ours.put((root, f"t{number}"), f"k{key}", {"n": number})
            return sum(item.value["n"] == number for item in ours.search((root, f"t{number}"), limit=100))

        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(work, range(16))) == [20] * 16


KILLED = """
import asyncio, os, signal, sys
from ephemera import connect
from langgraph.store.base import PutOp
from tests.adapters.test_langgraph_memories_faults import CATALOGUE, MEMORIES

async def main() -> None:
    async with connect(sys.argv[1], CATALOGUE) as store:
        ours = store[MEMORIES]
        for number in range(10**9):
            value, where = {"n": number}, (sys.argv[2], "pair")
            await ours.abatch([PutOp(where, each, value) for each in ("left", "right")])
            if number == 20:
                print("written", flush=True)

asyncio.run(main())
"""


async def test_a_killed_writer_leaves_whole_batches(server: Valkey) -> None:
    """After SIGKILL in the middle of writing, both items of the last batch are there, and found."""
    root = uuid4().hex
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, server.url, root, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"written\n"
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    async with keyspace.connect(server.url, CATALOGUE) as opened:
        found = await opened[MEMORIES].asearch((root,))
        assert [item.key for item in found] == ["left", "right"]
        assert found[0].value == found[1].value


FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # about fork with threads, which is what we test
from ephemera import sync
from tests.adapters.test_langgraph_memories_faults import CATALOGUE, MEMORIES

store = sync.connect(sys.argv[1], CATALOGUE)
ours, root = store[MEMORIES], sys.argv[2]
ours.put((root, "a"), "parent", {})
child = os.fork()
ours.put((root, "a"), "child" if child == 0 else "again", {})
found = ours.search((root,))
if child == 0:
    os._exit(len(found))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (2, 3)
print(sorted(item.key for item in ours.search((root,))))
store.close()
"""


def test_it_works_after_a_fork(server: Valkey) -> None:
    """What was bound before it works in the child, on connections of its own, and in the parent."""
    command = [sys.executable, "-c", FORKED, server.url, uuid4().hex]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("['again', 'child', 'parent']\n", "")
