"""Signal handlers that raise in the middle of accessors and patterns: later results are right."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from ephemera import sync
from ephemera.embedded import Valkey
from ephemera.sync import SyncStore
from tests.sync.shop import CATALOGUE, MAPPING, PROFILES, VALUE, Account


class SoftTimeLimit(Exception):
    """What the signal handler raises."""


def _raise(number: int, frame: object) -> None:
    raise SoftTimeLimit


def _operations(store: SyncStore, key: str) -> list[Callable[[int], bool]]:
    """Operations that each say whether their result is right."""
    names = [f"{key}{i}" for i in range(5)]

    def put(number: int) -> bool:
        return store[VALUE].put(Account(str(number)), name=key)

    def get_many(number: int) -> bool:
        return len(store[VALUE].get_many([{"name": name} for name in names])) == 5

    def echo(number: int) -> bool:
        store[MAPPING].put({str(number): number}, name=f"{key}:{number % 7}")
        return store[MAPPING].size(name=f"{key}:{number % 7}") == 1

    def load(number: int) -> bool:
        found: Account = store[PROFILES].get_or_load(Account, user_id=f"{key}{number}")
        return found == Account(f"{key}{number}")

    return [put, get_many, echo, load]


# A coroutine that was interrupted before it began is never awaited.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited", "ignore:Exception ignored in")
@pytest.mark.parametrize("times", [200, pytest.param(5_000, marks=pytest.mark.campaign)])
def test_later_results_are_right(server: Valkey, key: str, times: int) -> None:
    """Hundreds of interruptions at random moments: no result is another call's, and nothing hangs."""
    chance, before = random.Random(2), signal.signal(signal.SIGALRM, _raise)
    with sync.connect(server.url, CATALOGUE) as store:
        store[VALUE].put(Account("there"), name=f"{key}:fixed")
        operations = _operations(store, key)
        began = time.perf_counter()
        assert all(operation(0) for operation in operations)
        usual = (time.perf_counter() - began) / len(operations)
        stop, wrong = threading.Event(), list[object]()

        def other() -> None:
            while not stop.is_set():
                found = store[VALUE].get(name=f"{key}:fixed")
                if found != Account("there"):
                    wrong.append(found)

        thread = threading.Thread(target=other)
        thread.start()
        interrupted = number = 0
        try:
            while interrupted < times:
                number += 1
                try:
                    signal.setitimer(signal.ITIMER_REAL, max(1e-6, chance.uniform(0, usual)))
                    right = operations[number % len(operations)](number)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except SoftTimeLimit:
                    interrupted += 1
                else:
                    assert right
                with suppress(SoftTimeLimit):
                    signal.setitimer(signal.ITIMER_REAL, 0)
                assert store[VALUE].get(name=f"{key}:fixed") == Account("there")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            stop.set()
            thread.join()
        assert not wrong
    gc.collect()  # such coroutines, while their warning is expected
