"""The channel layer: order, groups and capacity, on a server and a cluster, beside channels_redis."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from channels.exceptions import ChannelFull

from ephemera import embedded
from ephemera.adapters.channels import RedisChannelLayer
from ephemera.embedded import Cluster, Valkey
from ephemera.errors import ConnectionFailed

Make = Callable[..., RedisChannelLayer]
PATIENCE = 30  # seconds


@pytest.fixture(params=["server", "cluster"])
async def make(request: pytest.FixtureRequest, key: str) -> AsyncIterator[Make]:
    """Makes layers that share a prefix of this test's own; each is as the layer of another process."""
    server: Valkey | Cluster = request.getfixturevalue(request.param)
    made: list[RedisChannelLayer] = []

    def layer(**options: Any) -> RedisChannelLayer:
        made.append(RedisChannelLayer([server.url], prefix=key, **options))
        return made[-1]

    yield layer
    for each in made:
        await each.flush()


async def received(layer: Any, channel: str) -> Any:
    """The next message of a channel."""
    async with asyncio.timeout(PATIENCE):
        return await layer.receive(channel)


async def send_forever(layer: RedisChannelLayer) -> None:
    """Send until it raises."""
    while True:
        with suppress(ChannelFull):
            await layer.send("other", {"type": "during"})


@pytest.mark.parametrize("is_local", [True, False])
async def test_messages_stay_in_order(make: Make, is_local: bool) -> None:
    """Also those that are sent at once, to a channel of a process and to one that any may receive."""
    sender, receiver = make(), make()
    channel = await receiver.new_channel() if is_local else "thumbnails"
    await asyncio.gather(*[sender.send(channel, {"type": "n", "n": n}) for n in range(100)])
    assert [(await received(receiver, channel))["n"] for _ in range(100)] == list(range(100))


async def test_a_message_arrives_as_it_was_sent(make: Make) -> None:
    """With nested values and bytes, and without anything that the layer added."""
    layer = make()
    channel = await layer.new_channel()
    message = {"type": "chat.message", "text": "ü", "raw": b"\x00\xff", "nested": {"a": [1, 2.5, None, True]}}
    await layer.send(channel, message)
    await layer.send("shared", message)
    assert await received(layer, channel) == message
    assert await received(layer, "shared") == message


async def test_a_group_reaches_every_channel_in_every_process(make: Make) -> None:
    """Each member gets a message of its own, once; a channel that was discarded gets none."""
    one, other = make(), make()
    mine = [await one.new_channel() for _ in range(3)]
    others = [await other.new_channel() for _ in range(2)]
    for layer, channel in [(one, each) for each in mine] + [(other, each) for each in others]:
        await layer.group_add("room", channel)
        await layer.group_add("room", channel)
    await one.group_discard("room", mine[2])
    await other.group_send("room", {"type": "hello"})
    await one.send(mine[2], {"type": "alone"})
    for layer, channel in [(one, mine[0]), (one, mine[1]), (other, others[0]), (other, others[1])]:
        assert await received(layer, channel) == {"type": "hello"}
    assert await received(one, mine[2]) == {"type": "alone"}
    assert one.receive_buffer == other.receive_buffer == {}


async def test_consumers_do_not_share_a_message_object(make: Make) -> None:
    """What one consumer changes in its message no other one sees."""
    layer = make()
    channels = [await layer.new_channel() for _ in range(2)]
    for channel in channels:
        await layer.group_add("room", channel)
    await layer.group_send("room", {"type": "hello"})
    (await received(layer, channels[0]))["type"] = "changed"
    assert await received(layer, channels[1]) == {"type": "hello"}


async def test_a_full_channel_refuses_messages(make: Make) -> None:
    """A send raises, a group leaves it out; capacities may differ by name."""
    layer = make(capacity=2, channel_capacity={"tiny*": 1})
    await layer.group_add("room", "tiny")
    await layer.send("tiny", {"type": "first"})
    with pytest.raises(ChannelFull):
        await layer.send("tiny", {"type": "second"})
    await layer.group_send("room", {"type": "third"})
    assert await received(layer, "tiny") == {"type": "first"}
    await layer.send("other", {"type": "first"})
    await layer.send("other", {"type": "second"})
    with pytest.raises(ChannelFull):
        await layer.send("other", {"type": "third"})


async def test_a_cancelled_consumer_loses_nothing(make: Make) -> None:
    """Neither its own next message nor those of other consumers of the process."""
    layer = make()
    first, second = [await layer.new_channel() for _ in range(2)]
    for number in range(20):
        waiting = asyncio.create_task(layer.receive(first))
        other = asyncio.create_task(layer.receive(second))
        await asyncio.gather(*[layer.send(each, {"type": "n", "n": number}) for each in (first, second)])
        waiting.cancel()
        got: Any = (await asyncio.gather(waiting, return_exceptions=True))[0]
        if isinstance(got, asyncio.CancelledError):
            got = await received(layer, first)
        assert got == await other == {"type": "n", "n": number}


async def test_many_consumers_use_one_connection(server: Any, key: str) -> None:
    """A thousand that wait need one blocked connection, and each gets its message."""
    layer = RedisChannelLayer([server.url], prefix=key)
    channels = [await layer.new_channel() for _ in range(1000)]
    waiting = [asyncio.create_task(layer.receive(channel)) for channel in channels]
    await asyncio.gather(*[layer.group_add("room", channel) for channel in channels])
    assert len(layer._receivers) == 1
    await layer.group_send("room", {"type": "hello"})
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*waiting) == [{"type": "hello"}] * 1000
    await layer.flush()


async def test_messages_of_consumers_that_are_gone_are_dropped(make: Make) -> None:
    """After their expiry, so that they do not fill the memory."""
    layer = make()
    gone, present = [await layer.new_channel() for _ in range(2)]
    await layer.send(gone, {"type": "n"})
    await layer.send(present, {"type": "n"})
    await received(layer, present)
    assert layer.receive_buffer[gone].qsize() == 1
    layer.receive_buffer[gone].used_at -= layer.expiry + 1
    layer._swept_at -= layer.expiry + 1
    await layer.send(present, {"type": "n"})
    await received(layer, present)
    assert layer.receive_buffer == {}


async def test_consumers_wait_through_an_outage() -> None:
    """A send raises at once; a consumer that waits gets the first message after the server is back."""
    with embedded.valkey() as server:
        layer = RedisChannelLayer([server.url])
        channel = await layer.new_channel()
        waiting = asyncio.create_task(layer.receive(channel))
        await layer.send("other", {"type": "before"})
        server.kill()
        with pytest.raises(ConnectionFailed):
            await send_forever(layer)
        server.restart()
        async with asyncio.timeout(PATIENCE):
            while not waiting.done():
                try:
                    await layer.send(channel, {"type": "after"})
                except (ConnectionFailed, ChannelFull):
                    await asyncio.sleep(0.05)
            assert await waiting == {"type": "after"}
        await layer.close_pools()


async def test_what_no_layer_has_sent_is_dropped(server: Any, key: str, caplog: Any) -> None:
    """Foreign bytes, wrong addressees and another key's messages: consumers receive the next message."""
    layer = RedisChannelLayer([server.url], prefix=key, symmetric_encryption_keys=["secret"])
    plain = RedisChannelLayer([server.url], prefix=key)
    plain.client_prefix = layer.client_prefix
    channel = await layer.new_channel()
    queue = key + layer.non_local_name(channel)
    client = await layer._servers[0].get()
    await client.call("ZADD", queue, 1, "short", 2, "x" * 100)
    for wrong in (7, {"a": 1}, [7, [8]], None):
        await client.call("ZADD", queue, 3, layer._codec.encode({"type": "wrong", "__asgi_channel__": wrong}))
    await plain.send(channel, {"type": "not encrypted"})
    await layer.send(channel, {"type": "next"})
    assert await received(layer, channel) == {"type": "next"}
    assert "dropped" in caplog.text
    await client.call("ZADD", f"{key}shared", 1, "short")
    await client.call("ZADD", f"{key}:group:room", 10**12, "shared", 10**12, b"\x80")
    await layer.group_send("room", {"type": "any"})
    assert await received(layer, "shared") == {"type": "any"}
    for each in (layer, plain):
        await each.flush()


async def test_encrypted_messages_and_a_new_key(make: Make) -> None:
    """The first key encrypts, and all decrypt: a key is replaced without losing messages."""
    old = make(symmetric_encryption_keys=["old"])
    new = make(symmetric_encryption_keys=["new", "old"], serializer_format="msgpack")
    await old.send("shared", {"type": "secret"})
    assert await received(new, "shared") == {"type": "secret"}


@pytest.mark.standalone("channels_redis has no client for a cluster")
@pytest.mark.parametrize("ours_sends", [True, False])
async def test_processes_with_channels_redis_are_reached(server: Any, key: str, ours_sends: bool) -> None:
    """During a deployment both layers share channels and groups, in both directions."""
    theirs_module = pytest.importorskip("channels_redis.core", reason="channels_redis is in the extra bench")
    ours = RedisChannelLayer([server.url], prefix=key)
    theirs = theirs_module.RedisChannelLayer([server.url], prefix=key)
    sender, receiver = (ours, theirs) if ours_sends else (theirs, ours)
    channel = await receiver.new_channel()
    await sender.group_add("room", channel)
    await sender.group_send("room", {"type": "hello", "raw": b"\xff"})
    await sender.send(channel, {"type": "direct"})
    await sender.send("shared", {"type": "any"})
    assert await received(receiver, channel) == {"type": "hello", "raw": b"\xff"}
    assert await received(receiver, channel) == {"type": "direct"}
    assert await received(receiver, "shared") == {"type": "any"}
    await ours.flush()
    await theirs.close_pools()


def test_synchronous_code_sends_to_a_running_consumer(server: Any, key: str) -> None:
    """Each `async_to_sync` has a loop of its own, whose end closes what it opened."""
    layer = RedisChannelLayer([server.url], prefix=key)
    channel = async_to_sync(layer.new_channel)()
    for number in range(3):
        async_to_sync(layer.send)(channel, {"type": "n", "n": number})
    assert [async_to_sync(layer.receive)(channel)["n"] for _ in range(3)] == [0, 1, 2]
    async_to_sync(layer.flush)()


def test_a_forked_child_is_a_process_of_its_own(server: Any) -> None:
    """A worker that forks after the layer was made receives no message of its parent."""
    layer = RedisChannelLayer([server.url])
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, layer.client_prefix.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100).decode() not in ("", layer.client_prefix)
    os.close(reading)
    os.close(writing)


async def test_wrong_use_is_refused() -> None:
    """The error says what was wrong, before anything is sent."""
    for hosts in ("redis://localhost", [("localhost", 6379, 1)], [{"address": "redis://a", "db": 1}]):
        with pytest.raises((TypeError, ValueError), match="host"):
            RedisChannelLayer(hosts)
    with pytest.raises(ValueError, match="serializer_format"):
        RedisChannelLayer(serializer_format="pickle")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="list of keys"):
        RedisChannelLayer(symmetric_encryption_keys="secret")
    layer = RedisChannelLayer([("localhost", 6379)])
    with pytest.raises(TypeError, match="dict"):
        await layer.send("shared", "text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="__asgi_channel__"):
        await layer.group_send("room", {"type": "x", "__asgi_channel__": "y"})
