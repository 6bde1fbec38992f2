"""The row of pub/sub: one publisher, 1,000 subscriptions in a process, all to one channel.

Each message is published after its predecessor has reached every subscriber, so the figure is messages
delivered in a second. A subscription of ours shares the connection of its store; redis-py opens one for each
`PubSub`, by the design of its API. `redis-py, one PubSub` is what a program with redis-py can do instead: one
subscription, from which a task hands each message to 1,000 queues of its own. Each contender has a channel of
its own, because all are subscribed during the whole run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Any

from benchmarks import peers
from benchmarks.rows import Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, connect

_SUBSCRIPTIONS = 1000
_MESSAGE = b"m" * 100


Read = Callable[[], Awaitable[Any]]


class Deliveries:
    """A round: publish, wait until all have it, publish again."""

    def __init__(self, publish: Read, reads: Sequence[Read] = ()) -> None:
        self._publish = publish
        self._reads = reads  # none where subscribers call `received` themselves
        self._missing = 0
        self._all_have_it: asyncio.Future[None]

    async def __call__(self, seconds: float) -> float:
        """Messages delivered per second."""
        subscribers = [asyncio.create_task(self._subscribe(read)) for read in self._reads]
        try:
            messages, began = 0, time.perf_counter()
            while (took := time.perf_counter() - began) < seconds:
                self._missing = _SUBSCRIPTIONS
                self._all_have_it = asyncio.get_running_loop().create_future()
                await self._publish()
                await self._all_have_it
                messages += 1
            return messages * _SUBSCRIPTIONS / took
        finally:
            await _end(subscribers)

    async def _subscribe(self, read: Read) -> None:
        while True:
            self.received(await read())

    def received(self, message: bytes) -> None:
        """A subscriber has the message."""
        if message != _MESSAGE:
            self._all_have_it.set_exception(RuntimeError(f"a subscriber got {message!r}"))
        self._missing -= 1
        if not self._missing:
            self._all_have_it.set_result(None)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


@asynccontextmanager
async def ours(servers: Servers) -> AsyncIterator[Round]:
    """Subscriptions of one store, and another that publishes."""
    channel = "bench:ours"
    catalogue = Catalogue("bench-pubsub")
    async with (
        AsyncExitStack() as stack,
        connect(servers.valkey.url, catalogue) as publisher,
        connect(servers.valkey.url, catalogue) as store,
    ):
        opened = [await stack.enter_async_context(store.subscribe(channel)) for _ in range(_SUBSCRIPTIONS)]

        def reader(messages: Any) -> Read:
            async def read() -> bytes:
                data: bytes = (await anext(messages)).data
                return data

            return read

        yield Deliveries(
            lambda: publisher.call("PUBLISH", channel, _MESSAGE), [reader(aiter(each)) for each in opened]
        )


@asynccontextmanager
async def redis_py(servers: Servers) -> AsyncIterator[Round]:
    """A `PubSub` of redis-py for each subscription."""
    channel = "bench:redis-py"
    async with AsyncExitStack() as stack, peers.redis_py_untimed(servers.valkey) as client:
        opened = [await stack.enter_async_context(client.pubsub()) for _ in range(_SUBSCRIPTIONS)]
        for each in opened:
            await each.subscribe(channel)
            await each.get_message(timeout=10)  # the confirmation

        def reader(pubsub: Any) -> Read:
            async def read() -> bytes:
                data: bytes = (await pubsub.get_message(timeout=None))["data"]
                return data

            return read

        yield Deliveries(lambda: client.publish(channel, _MESSAGE), [reader(each) for each in opened])


@asynccontextmanager
async def redis_py_once(servers: Servers) -> AsyncIterator[Round]:
    """One `PubSub` of redis-py, whose messages a task puts into a queue for each subscriber."""
    channel = "bench:one-pubsub"
    async with peers.redis_py_untimed(servers.valkey) as client, client.pubsub() as pubsub:
        await pubsub.subscribe(channel)
        await pubsub.get_message(timeout=10)
        queues: list[asyncio.Queue[bytes]] = [asyncio.Queue() for _ in range(_SUBSCRIPTIONS)]

        async def hand_out() -> None:
            while True:
                message = await pubsub.get_message(timeout=None)
                for queue in queues:
                    queue.put_nowait(message["data"])

        task = asyncio.create_task(hand_out())
        yield Deliveries(lambda: client.publish(channel, _MESSAGE), [queue.get for queue in queues])
        await _end([task])


@asynccontextmanager
async def redis_py_kit(servers: Servers) -> AsyncIterator[Round]:
    """An `AsyncPubSub` of redis-py-kit for each subscription; it calls a handler."""
    channel = "bench:kit"
    kit, text = import_module("redis_kit").AsyncPubSub, _MESSAGE.decode()
    async with peers.redis_py_untimed(servers.valkey) as client:
        publisher, opened = kit(client), [kit(client) for _ in range(_SUBSCRIPTIONS)]
        deliveries = Deliveries(lambda: publisher.publish(channel, text))
        for each in opened:
            await each.subscribe(channel, lambda message: deliveries.received(message.encode()))
        tasks = [asyncio.create_task(each.listen(timeout=60)) for each in opened]
        yield deliveries
        await _end(tasks)
        for each in (publisher, *opened):
            await each.close()


ROWS = (
    Row(
        "pub/sub: one publisher, 1,000 subscriptions",
        ours,
        {"redis-py": redis_py, "redis-py, one PubSub": redis_py_once, "redis-py-kit": redis_py_kit},
        (Times(4, "redis-py"),),
        unit="messages/s",
    ),
)
