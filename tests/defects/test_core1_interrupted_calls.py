"""CORE1: a blocking call that a signal handler interrupted gave a later call a wrong reply, or hung it."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from ephemera import blocking
from ephemera.blocking import BlockingStore
from ephemera.embedded import Valkey


class SoftTimeLimit(Exception):
    """What the signal handler raises."""


@contextmanager
def alarms(handler: object) -> Iterator[None]:
    """SIGALRM calls the handler."""
    before = signal.signal(signal.SIGALRM, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _raise(number: int, frame: object) -> None:
    raise SoftTimeLimit


def _interrupt(store: BlockingStore, key: str, times: int) -> int:
    """Interrupt calls at random moments, check every reply; returns how many were interrupted."""
    store.call("SET", key, "there", "EX", 3600)
    began = time.perf_counter()
    for _ in range(50):
        store.call("ECHO", "warm")
    usual = (time.perf_counter() - began) / 50
    chance = random.Random(1)
    interrupted = number = 0
    works = ("call", "call", "wait", "script")
    while interrupted < times:
        number += 1
        work, expected = works[number % len(works)], str(number).encode()
        try:
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, chance.uniform(0, 1.5 * usual)))
            if work == "call":
                reply = store.call("ECHO", number)
            elif work == "script":
                reply = store.call("EVAL", "return ARGV[1]", 0, number)
            else:
                reply = store.wait(_echo(store, number))
            signal.setitimer(signal.ITIMER_REAL, 0)
        except SoftTimeLimit:
            interrupted += 1
        else:
            assert reply == expected
        with suppress(SoftTimeLimit):
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert store.call("GET", key) == b"there"
    return number


async def _echo(store: BlockingStore, number: int) -> bytes:
    reply: bytes = await store.aio.call("ECHO", number)
    return reply


# A coroutine whose `wait` was interrupted before it began is never awaited.
@pytest.mark.filterwarnings("ignore:coroutine '_echo' was never awaited", "ignore:Exception ignored in")
@pytest.mark.parametrize("times", [300, pytest.param(10_000, marks=pytest.mark.campaign)])
def test_core1_later_replies_are_right(server: Valkey, key: str, times: int) -> None:
    """Hundreds of interruptions at random moments: every later reply belongs to its call, and none hangs."""
    with blocking.connect(server.url) as store, alarms(_raise):
        others_stop = threading.Event()
        wrong: list[object] = []

        def other() -> None:
            number = 0
            while not others_stop.is_set():
                number += 1
                if (reply := store.call("ECHO", number)) != str(number).encode():
                    wrong.append(reply)

        thread = threading.Thread(target=other)
        thread.start()
        try:
            _interrupt(store, key, times)
        finally:
            others_stop.set()
            thread.join()
        assert not wrong
    gc.collect()  # such coroutines, while their warning is expected


def test_core1_a_signal_handler_may_call_the_store(server: Valkey, key: str) -> None:
    """Calls from inside a signal handler, in the middle of other calls, all get their own replies."""
    with blocking.connect(server.url) as store:
        inner: list[bool] = []

        def handler(number: int, frame: object) -> None:
            value = f"inner-{len(inner)}"
            inner.append(store.call("ECHO", value) == value.encode())
            signal.setitimer(signal.ITIMER_REAL, 0.0007)  # not before: on a slow machine they would nest

        with alarms(handler):
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            number = 0
            while len(inner) < 100:
                number += 1
                assert store.call("ECHO", number) == str(number).encode()
        assert all(inner)


def _call_with_alarm(store: BlockingStore, *command: str | int) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    store.call(*command)


def test_core1_an_interrupted_blocking_command_pops_nothing_later(server: Valkey, key: str) -> None:
    """After BLPOP was interrupted its connection ends: what is pushed next stays for the next caller."""
    with blocking.connect(server.url) as store, alarms(_raise):
        with pytest.raises(SoftTimeLimit):
            _call_with_alarm(store, "BLPOP", key, 60)
        ends = time.monotonic() + 60
        while "cmd=blpop" in store.call("CLIENT", "LIST").decode():  # until the server has noticed
            assert time.monotonic() < ends
            time.sleep(0.001)
        store.call("RPUSH", key, "item")
        assert store.call("BLPOP", key, 5) == [key.encode(), b"item"]


def test_core1_a_handler_during_the_first_connect_is_refused(server: Valkey) -> None:
    """A handler that uses the store while it connects gets a clear error, not a deadlock."""
    refused: list[BaseException] = []
    store = blocking.connect(server.url)

    def handler(number: int, frame: object) -> None:
        try:
            store.call("PING")
        except Exception as error:
            refused.append(error)

    with alarms(handler), store._starting:
        store._is_starting = True  # as in the middle of `_start`
        signal.raise_signal(signal.SIGALRM)
        store._is_starting = False
    assert "signal handler used it before that" in str(refused[0])
    assert store.call("ECHO", "fine") == b"fine"
    store.close()
