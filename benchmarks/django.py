"""Django's rows: its cache, asynchronous and synchronous, and a group of Channels.

The peers are Django's own Redis backend, with redis-py and hiredis, and channels_redis. Both caches store
pickles, so that the same is decoded. A message to a group counts when all ten consumers of the group have it;
the consumers are in the same process, each with a channel of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from benchmarks.load import Tasks, Threads
from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers

KEY = "profile:42"
VALUE = {"name": "Ann", "team": "red", "text": "v" * 100}
_MEMBERS = 10
_ROOM = 100_000  # messages that a channel holds: none is ever full

Make = Callable[[str], Any]
"""Makes a contender's cache or layer for a URL."""


def our_cache(url: str) -> Any:
    """Our backend."""
    module = import_module("ephemera.adapters.django")
    return module.RedisCache(url, {"KEY_PREFIX": "ours", "OPTIONS": {"serializer": "pickle"}})


def djangos_cache(url: str) -> Any:
    """Django's own."""
    return import_module("django.core.cache.backends.redis").RedisCache(url, {"KEY_PREFIX": "djangos"})


def our_layer(url: str) -> Any:
    """Our channel layer."""
    return import_module("ephemera.adapters.channels").RedisChannelLayer([url], "ours", capacity=_ROOM)


def channels_redis(url: str) -> Any:
    """The layer of channels_redis."""
    return import_module("channels_redis.core").RedisChannelLayer([url], "theirs", capacity=_ROOM)


def aget(make: Make, tasks: int) -> Opener:
    """That many tasks that await values."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        cache = make(servers.valkey.url)
        await cache.aset(KEY, VALUE)
        _check(await cache.aget(KEY))

        async def work(count: int) -> None:
            for _ in range(count):
                await cache.aget(KEY)

        yield Tasks(tasks, work)

    return opened


def get(make: Make, threads: int) -> Opener:
    """That many threads that read values."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        cache = make(servers.valkey.url)
        await asyncio.to_thread(cache.set, KEY, VALUE)
        _check(await asyncio.to_thread(cache.get, KEY))

        def work(count: int) -> None:
            for _ in range(count):
                cache.get(KEY)

        yield Threads(threads, work)

    return opened


def group_send(make: Make, tasks: int) -> Opener:
    """That many tasks that send to one group, each its next message when the last has arrived everywhere."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        layer = make(servers.valkey.url)
        arrived: dict[int, tuple[asyncio.Future[None], list[None]]] = {}

        async def consume(channel: str) -> None:
            while True:
                number = (await layer.receive(channel))["number"]
                done, seen = arrived[number]
                seen.append(None)
                if len(seen) == _MEMBERS:
                    del arrived[number]
                    done.set_result(None)

        async def send() -> None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            arrived[id(done)] = done, []
            await layer.group_send("room", {"type": "chat.message", "number": id(done), "text": "v" * 100})
            await done

        async def work(count: int) -> None:
            for _ in range(count):
                await send()

        channels = [await layer.new_channel() for _ in range(_MEMBERS)]
        for channel in channels:
            await layer.group_add("room", channel)
        consumers = [asyncio.create_task(consume(channel)) for channel in channels]
        yield Tasks(tasks, work)
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        await layer.close_pools()

    return opened


def _check(value: Any) -> None:
    if value != VALUE:
        raise RuntimeError(f"the cache answered {value!r} in place of the stored value")


ROWS = (
    Row(
        "Django cache: aget, 50 tasks",
        aget(our_cache, 50),
        {"Django": aget(djangos_cache, 50)},
        (Times(20, "Django"),),
    ),
    Row(
        "Django cache: get, one thread",
        get(our_cache, 1),
        {"Django": get(djangos_cache, 1)},
        (Times(1.5, "Django"),),
    ),
    Row(
        "Django cache: get, 8 threads",
        get(our_cache, 8),
        {"Django": get(djangos_cache, 8)},
        (Times(1.5, "Django"),),
    ),
    Row(
        "Channels: a message to a group of 10, 50 tasks",
        group_send(our_layer, 50),
        {"channels_redis": group_send(channels_redis, 50)},
        (Times(3, "channels_redis"),),
        unit="messages/s",
    ),
    Row(
        "Channels: a message to a group of 10, one task",
        group_send(our_layer, 1),
        {"channels_redis": group_send(channels_redis, 1)},
        unit="messages/s",
    ),
)
