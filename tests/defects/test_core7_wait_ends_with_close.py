"""CORE7: `wait()` blocked forever when another thread closed the store."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ephemera import blocking
from ephemera.embedded import Valkey
from ephemera.errors import EphemeraError, StoreClosed


def test_core7_wait_raises_when_the_store_is_closed(server: Valkey) -> None:
    """A coroutine that would run for an hour is cancelled, and its caller gets `StoreClosed`."""
    store = blocking.connect(server.url)
    store.call("PING")
    started = threading.Event()

    async def sleep() -> None:
        started.set()
        await asyncio.sleep(3600)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.wait, sleep())
        assert started.wait(60)
        store.close()
        with pytest.raises(StoreClosed):
            waiting.result(60)


def test_core7_calls_in_the_moment_of_close_all_end(server: Valkey) -> None:
    """Eight threads call while the store is closed: each gets a reply or an error, none waits forever."""
    for _ in range(10):
        store = blocking.connect(server.url)
        store.call("PING")

        def work(thread: int, store: blocking.BlockingStore = store) -> int:
            for number in range(100_000):
                try:
                    store.call("ECHO", number)
                except EphemeraError:
                    return number
            return -1

        with ThreadPoolExecutor(8) as pool:
            threads = [pool.submit(work, thread) for thread in range(8)]
            time.sleep(0.005)
            store.close()
            assert all(thread.result(60) >= 0 for thread in threads)
