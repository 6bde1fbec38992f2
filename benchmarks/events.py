"""The events' rows: published, handled and acknowledged by one process, and published in batches.

All contenders have a consumer group on a Redis stream, one typed event of two fields, a handler that only
counts, at most ten handlers at a time, and an acknowledgement after each success. Fifty tasks publish, each
event by a call of its own, while the consumer of the same process handles; a round ends when nothing is
pending on the server.

- FastStream 0.7 reads ten at a time with ten workers, with msgspec as its serializer and without its logger.
  Its `publish` has no batches for streams: fifty tasks call it at once, or it fills a pipeline of redis-py.
- taskiq's stream broker reads a hundred at a time, its default, with ten tasks; its log is switched off, and
  it keeps no results.
- redis-py-kit's consumer reads as many at a time as FastStream's and acknowledges each by a call of its own.
  It has no handlers, so a task reads in a loop; data is text, so each event is its fields. It needs RESP2.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import msgspec

from benchmarks import peers
from benchmarks.load import Load
from benchmarks.rows import Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, connect
from ephemera.patterns.events import Delivery, Events


class Registered(msgspec.Struct, tag=True):
    """A user was added."""

    user_id: str
    email: str


class Removed(msgspec.Struct, tag=True):
    """A user was removed."""

    user_id: str


CATALOGUE = Catalogue("bench-events")
EVENTS: Events[Registered | Removed] = Events(
    CATALOGUE, "bench:events", Registered | Removed, purpose="Measured here"
)
_EVENT = Registered("5f1d7a84", "ann@example.org")
_PUBLISHERS = 50
_HANDLERS = 10
_BATCH = 500
_PUBLISHED = "peer:published"
_PATIENCE = 10


class Handled(Load):
    """A round that publishes this many events and ends when all of them are handled and acknowledged."""

    def __init__(self, publish: Callable[[], Awaitable[Any]], pending: Callable[[], Awaitable[int]]) -> None:
        super().__init__(_PUBLISHERS)
        self.count = 0
        self._publish = publish
        self._pending = pending
        self._all = asyncio.Event()
        self._expected = 0

    def one(self) -> None:
        """One event was handled."""
        self.count += 1
        if self.count >= self._expected:
            self._all.set()

    async def perform(self, each: int) -> float:
        """Publish, and wait until nothing is left."""
        self.count, self._expected = 0, each * _PUBLISHERS
        self._all.clear()
        began = time.perf_counter()
        await asyncio.gather(*(self._publish_some(each) for _ in range(_PUBLISHERS)))
        await self._all.wait()
        while await self._pending():
            await asyncio.sleep(0.001)
        return time.perf_counter() - began

    async def _publish_some(self, times: int) -> None:
        publish = self._publish
        for _ in range(times):
            await publish()


@asynccontextmanager
async def our_events(servers: Servers) -> AsyncIterator[Round]:
    """Our events, consumed on the store that publishes them."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        events = store[EVENTS]

        async def pending() -> int:
            return (await events.info()).groups[0].pending

        round_ = Handled(lambda: events.publish(_EVENT), pending)

        async def handle(_event: Registered | Removed, _delivery: Delivery) -> None:
            round_.one()

        async with events.consume("bench", handle, concurrency=_HANDLERS):
            yield round_


def _pending_of(client: Any, stream: str) -> Callable[[], Awaitable[int]]:
    async def pending() -> int:
        return int((await client.xpending(stream, "bench"))["pending"])

    return pending


@asynccontextmanager
async def faststream_events(servers: Servers) -> AsyncIterator[Round]:
    """FastStream's subscriber of a stream with a group."""
    broker = _faststream(servers)
    stream = import_module("faststream.redis").StreamSub(
        "peer:faststream", group="bench", consumer="one", max_records=10
    )
    async with peers.redis_py(servers.valkey) as client:
        round_ = Handled(
            lambda: broker.publish(_EVENT, stream="peer:faststream"), _pending_of(client, "peer:faststream")
        )

        @broker.subscriber(stream=stream, max_workers=_HANDLERS)  # type: ignore[untyped-decorator]
        async def handle(event: Registered) -> None:
            round_.one()

        await broker.start()
        try:
            yield round_
        finally:
            await broker.stop()


def _faststream(servers: Servers) -> Any:
    serializer = import_module("fast_depends.msgspec").MsgSpecSerializer()
    return import_module("faststream.redis").RedisBroker(
        servers.valkey.url, logger=None, serializer=serializer
    )


@asynccontextmanager
async def taskiq_events(servers: Servers) -> AsyncIterator[Round]:
    """The stream broker of taskiq with a receiver in this process."""
    broker = import_module("taskiq_redis").RedisStreamBroker(
        servers.valkey.url, queue_name="peer:taskiq", consumer_group_name="bench"
    )
    logging.getLogger("taskiq").setLevel(logging.CRITICAL)

    @broker.task  # type: ignore[untyped-decorator]
    async def handle(user_id: str, email: str) -> None:
        round_.one()

    async with peers.redis_py(servers.valkey) as client:
        round_ = Handled(lambda: handle.kiq(_EVENT.user_id, _EVENT.email), _pending_of(client, "peer:taskiq"))
        receiver = import_module("taskiq.receiver").Receiver(broker, max_async_tasks=_HANDLERS)
        await broker.startup()
        finish = asyncio.Event()
        listening = asyncio.create_task(receiver.listen(finish))
        try:
            yield round_
        finally:
            await _end_taskiq(broker, listening, finish)


@asynccontextmanager
async def kit_events(servers: Servers) -> AsyncIterator[Round]:
    """The producer and the consumer of redis-py-kit, with a task that reads in a loop."""
    kit, stream = import_module("redis_kit"), "peer:kit"
    async with peers.redis_py_untimed(servers.valkey, protocol=2) as client:
        producer = kit.AsyncStreamProducer(client, stream)
        consumer = kit.AsyncStreamConsumer(client, stream, "bench", "one")
        await consumer.ensure_group()
        fields = msgspec.to_builtins(_EVENT)
        round_ = Handled(lambda: producer.add(fields), _pending_of(client, stream))

        async def read() -> None:
            while True:
                async for message in consumer.listen(count=_HANDLERS):
                    msgspec.convert(message.data, Registered)
                    round_.one()

        reading = asyncio.create_task(read())
        try:
            yield round_
        finally:
            reading.cancel()
            await asyncio.wait([reading])


async def _end_taskiq(broker: Any, listening: asyncio.Task[None], finish: asyncio.Event) -> None:
    """Ask it to finish; if its cancelled read continues, which happens, close its connections."""
    finish.set()
    for _ in range(_PATIENCE):
        if (await asyncio.wait((listening,), timeout=0.5))[0]:
            break
        await broker.connection_pool.disconnect()
        listening.cancel()
    if listening.done() and not listening.cancelled():
        listening.exception()
    await broker.shutdown()


@asynccontextmanager
async def our_batches(servers: Servers) -> AsyncIterator[Round]:
    """Our `publish_many`."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        events = store[EVENTS]
        yield Batches(
            lambda: events.publish_many([_EVENT] * _BATCH), lambda: store.call("DEL", "bench:events")
        )


@asynccontextmanager
async def faststream_publish(servers: Servers) -> AsyncIterator[Round]:
    """FastStream's `publish`, by as many tasks as a batch has events."""
    broker = _faststream(servers)
    await broker.start()
    async with peers.redis_py(servers.valkey) as client:

        async def batch() -> None:
            await asyncio.gather(*(broker.publish(_EVENT, stream=_PUBLISHED) for _ in range(_PUBLISHERS)))

        try:
            yield Batches(batch, lambda: client.delete(_PUBLISHED), _PUBLISHERS)
        finally:
            await broker.stop()


@asynccontextmanager
async def faststream_pipeline(servers: Servers) -> AsyncIterator[Round]:
    """FastStream's `publish` into a pipeline of redis-py."""
    broker = _faststream(servers)
    await broker.start()
    async with peers.redis_py(servers.valkey) as client:

        async def batch() -> None:
            async with client.pipeline(transaction=False) as pipeline:
                for _ in range(_BATCH):
                    await broker.publish(_EVENT, stream=_PUBLISHED, pipeline=pipeline)
                await pipeline.execute()

        try:
            yield Batches(batch, lambda: client.delete(_PUBLISHED))
        finally:
            await broker.stop()


class Batches(Load):
    """One task that publishes batch after batch; the stream is emptied after each round."""

    def __init__(
        self, batch: Callable[[], Awaitable[Any]], empty: Callable[[], Awaitable[Any]], size: int = _BATCH
    ) -> None:
        super().__init__(size)
        self._batch = batch
        self._empty = empty

    async def perform(self, each: int) -> float:
        """This many batches; emptying the stream is not counted."""
        began = time.perf_counter()
        for _ in range(each):
            await self._batch()
        took = time.perf_counter() - began
        await self._empty()
        return took


ROWS = (
    Row(
        "events: published, handled, acked",
        our_events,
        {"FastStream": faststream_events, "taskiq": taskiq_events, "redis-py-kit": kit_events},
        (Times(20, "FastStream"), Times(3, "taskiq")),
        unit="events/s",
    ),
    Row(
        "events: published in batches of 500",
        our_batches,
        {"FastStream": faststream_publish, "FastStream, pipeline": faststream_pipeline},
        (Times(10, "FastStream"),),
        unit="events/s",
    ),
)
