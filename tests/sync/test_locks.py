"""Locks in synchronous code: how a holder learns that its lock was lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ephemera import LockAlreadyHeld, LockLost, LockTimeout, sync
from ephemera.embedded import Valkey
from ephemera.patterns.locks import HeldLock
from ephemera.sync import SyncStore
from tests.sync.shop import BOOKS, CATALOGUE, COUNTER, LOCKS, PERMITS


@pytest.fixture
def store(server: Valkey) -> Iterator[SyncStore]:
    """A synchronous store on the shared server."""
    with sync.connect(server.url, CATALOGUE) as opened:
        yield opened


def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.005)


def lose(store: SyncStore, held: HeldLock) -> None:
    """Take the lock away from its holder, as an eviction would, and wait until its block has ended."""
    taking = threading.Thread(target=store.call, args=("DEL", held.key))
    taking.start()
    taking.join()
    until(lambda: bool(store._blocking.ended_blocks))
    assert held.lost


def test_a_lock_is_held_for_a_block(store: SyncStore, key: str) -> None:
    """It is renewed beyond its lease, excludes other threads, and is free after the block."""
    with store[LOCKS].hold(name=key) as held:
        assert held.fence > 0
        until(lambda: held.remaining < 0.7)
        until(lambda: held.remaining > 0.8)  # renewed
        others: list[object] = []

        def other() -> None:
            with store[LOCKS].try_hold(name=key) as got:
                others.append(got)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert others == [None]
        holder = store[LOCKS].holder(name=key)
        assert holder is not None
        assert holder.fence == held.fence
    assert store[LOCKS].holder(name=key) is None
    assert (store[LOCKS].held, store[LOCKS].lost) == (0, 0)


def test_a_second_hold_of_the_same_thread_is_refused(store: SyncStore, key: str) -> None:
    """It would wait for itself."""
    with store[LOCKS].hold(name=key), pytest.raises(LockAlreadyHeld), store[LOCKS].hold(name=key):
        pass
    with store[PERMITS].hold(name=key), pytest.raises(LockAlreadyHeld), store[PERMITS].hold(name=key):
        pass
    with store[BOOKS].read(name=key), pytest.raises(LockAlreadyHeld), store[BOOKS].write(name=key):
        pass


def test_waiting_for_a_lock_times_out(store: SyncStore, key: str) -> None:
    """`LockTimeout` names the holder; nothing is held afterwards."""
    problems: list[BaseException] = []

    def other() -> None:
        try:
            with store[LOCKS].hold(name=key, timeout=0.05):
                pass
        except LockTimeout as problem:
            problems.append(problem)

    with store[LOCKS].hold(name=key):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(problems) == 1


def test_the_next_call_of_the_holder_raises_lock_lost_once(store: SyncStore, key: str) -> None:
    """Any call of the thread on the store raises it; the calls of other threads do not."""
    reached = []

    def work() -> None:
        with store[LOCKS].hold(name=key) as held:
            lose(store, held)
            other = threading.Thread(target=lambda: reached.append(store.call("PING")))
            other.start()
            other.join()
            with pytest.raises(LockLost):
                store[COUNTER].add(name=key)
            reached.append(store.call("PING"))  # once: the block can clean up; its end raises it again

    with pytest.raises(LockLost, match="no longer had it"):
        work()
    assert reached == [b"PONG", b"PONG"]
    assert store[COUNTER].get(name=key) == 0
    assert store[LOCKS].lost >= 1


def test_a_block_that_calls_nothing_learns_it_at_its_end(store: SyncStore, key: str) -> None:
    """The end of the block raises `LockLost`, and the thread's later calls are unaffected."""
    with pytest.raises(LockLost), store[LOCKS].hold(name=key) as held:
        lose(store, held)
    assert store.call("PING") == b"PONG"


def test_an_error_of_the_block_stays_and_gets_a_note(store: SyncStore, key: str) -> None:
    """The error is raised as it is; a note says that the lock was lost, too."""

    def work() -> None:
        with store[LOCKS].hold(name=key) as held:
            lose(store, held)
            raise KeyError("of the block")

    with pytest.raises(KeyError) as raised:
        work()
    assert "was lost" in raised.value.__notes__[0]
    assert store.call("PING") == b"PONG"


def test_an_error_of_the_block_releases_the_lock(store: SyncStore, key: str) -> None:
    """Also one that is no `Exception`."""
    with pytest.raises(KeyboardInterrupt), store[LOCKS].hold(name=key):
        raise KeyboardInterrupt
    assert store[LOCKS].holder(name=key) is None


def test_nested_locks_are_both_released(store: SyncStore, key: str) -> None:
    """When the outer one is lost, the inner one is released, and the outer block raises."""
    with pytest.raises(LockLost), store[LOCKS].hold(name=key) as outer:
        with store[LOCKS].hold(name=f"{key}:inner"):
            lose(store, outer)
    assert store[LOCKS].holder(name=f"{key}:inner") is None


def test_closing_the_store_ends_the_holds_of_other_threads(server: Valkey, key: str) -> None:
    """The holder gets `LockLost` from the end of its block."""
    store = sync.connect(server.url, CATALOGUE)
    entered, closed, problems = threading.Event(), threading.Event(), list[BaseException]()

    def hold() -> None:
        try:
            with store[LOCKS].hold(name=key):
                entered.set()
                closed.wait(60)
        except LockLost as problem:
            problems.append(problem)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(60)
    store.close()
    closed.set()
    thread.join(60)
    assert "its store was closed" in str(problems[0])


def test_an_interrupted_acquisition_holds_nothing(store: SyncStore, key: str) -> None:
    """A signal handler that raises while the lock is waited for leaves no lock and no waiter behind."""

    class SoftTimeLimit(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise SoftTimeLimit

    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with store[LOCKS].hold(name=key):
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(60)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(SoftTimeLimit), store[LOCKS].hold(name=key):
            pass
    finally:
        signal.signal(signal.SIGALRM, before)
        leave.set()
        thread.join(60)
    with store[LOCKS].hold(name=key, timeout=30):
        pass
    until(lambda: store[LOCKS].holder(name=key) is None)


def test_a_fork_inside_a_block_leaves_the_lock_to_the_parent(store: SyncStore, key: str) -> None:
    """The child leaves the block without releasing what its parent holds."""
    with store[LOCKS].hold(name=key) as held:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store[LOCKS].holder(name=key)
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        holder = store[LOCKS].holder(name=key)
        assert holder is not None
        assert holder.fence == held.fence
