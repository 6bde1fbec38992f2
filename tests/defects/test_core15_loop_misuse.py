"""CORE15: a store used from another event loop executed the write, then raised asyncio's RuntimeError."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from ephemera import Catalogue, LoopMisuse, Script, Store, blocking, connect, fixed
from ephemera.embedded import Valkey

catalogue = Catalogue("core15")
NOTE = catalogue.value("core15:note:{name}", str, lifetime=fixed(minutes=1), purpose="A note")
WRITE = Script("core15", "return redis.call('SET', KEYS[1], '1', 'EX', 60)")

USES: dict[str, Callable[[Store, str], Awaitable[Any]]] = {
    "a command": lambda store, key: store.call("SET", key, "1", "EX", 60),
    "a script": lambda store, key: store.run(WRITE, [key]),
    "an accessor": lambda store, key: store[NOTE].put("1", name=key),
    "a blocking command": lambda store, key: store.call("BLMOVE", key, key, "LEFT", "LEFT", 1),
    "a subscription": lambda store, key: store.subscribe(key).__aenter__(),
}


async def _use(store: Store, key: str, use: Callable[[Store, str], Awaitable[Any]]) -> None:
    with pytest.raises(LoopMisuse, match=r"another event loop.*Open a store here"):
        await use(store, key)


@pytest.mark.on_both_loops
@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_core15_another_loop_is_refused_before_anything_is_sent(
    server: Valkey, key: str, use: Callable[[Store, str], Awaitable[Any]]
) -> None:
    """A loop in another thread gets `LoopMisuse`, nothing is written, and the store's loop keeps running."""
    async with connect(server.url, catalogue) as store:
        await store.call("PING")
        await asyncio.to_thread(asyncio.run, _use(store, key, use))
        assert await store.call("EXISTS", key, f"core15:note:{key}") == 0
        assert await store.call("ECHO", "still right") == b"still right"


async def test_core15_refused_while_its_own_loop_is_busy(server: Valkey, key: str) -> None:
    """A thread that calls in the middle of the owner's ticks never gets a command into their writes."""
    async with connect(server.url) as store:
        done = threading.Event()
        refused = 0

        def intrude() -> None:
            nonlocal refused
            while not done.is_set():
                with pytest.raises(LoopMisuse):
                    store.call("SET", key, "intruder", "EX", 60)
                refused += 1

        intruding = asyncio.create_task(asyncio.to_thread(intrude))
        while refused < 100:
            numbers = [str(n).encode() for n in range(50)]
            assert await asyncio.gather(*(store.call("ECHO", n) for n in numbers)) == numbers
        done.set()
        await intruding
        assert await store.call("EXISTS", key) == 0


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_core15_a_second_loop_of_the_same_thread(
    server: Valkey, key: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """A store kept from one `run_until_complete` to a loop that runs after it is refused there."""
    first, second = new_loop(), new_loop()
    context = connect(server.url)
    store = first.run_until_complete(context.__aenter__())
    second.run_until_complete(_use(store, key, USES["a command"]))
    assert first.run_until_complete(_exists(store, key)) == 0
    first.run_until_complete(context.__aexit__(None, None, None))
    first.close()
    second.close()


async def _exists(store: Store, key: str) -> int:
    return int(await store.call("EXISTS", key))


def test_core15_the_async_store_of_a_synchronous_one_is_refused_outside_its_thread(
    server: Valkey, key: str
) -> None:
    """`store.aio.call(...)` in the caller's thread is refused; `store.wait(coroutine)` is the way."""
    with blocking.connect(server.url, catalogue) as store:
        with pytest.raises(LoopMisuse, match=r"ephemera\.sync\.connect"):
            store.aio.call("SET", key, "1")
        assert store.call("EXISTS", key) == 0
        assert store.wait(store.aio[NOTE].put("1", name=key))
