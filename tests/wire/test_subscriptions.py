"""Subscriptions: one connection for all, every gap is reported, a slow subscriber delays no other."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import ServerError, StoreClosed, UnsupportedCommand
from ephemera.wire import Message, NodeClient, Subscription
from tests.wire.clients import connection_of, node_client
from tests.wire.conditions import eventually


def _connections(server: Valkey) -> int:
    return len(str(server.ask("CLIENT", "LIST", "TYPE", "pubsub")).splitlines())


async def test_a_message_reaches_its_subscriber(client: NodeClient, key: str) -> None:
    """Every message published after the subscription was confirmed arrives, in order, with its channel."""
    async with client.subscribe(key, f"{key}:other") as messages:
        assert await client.call("PUBLISH", key, "one") == 1
        await client.call("PUBLISH", f"{key}:other", b"\xff\r\n")
        assert await anext(messages) == Message(key.encode(), b"one")
        assert await anext(messages) == Message(f"{key}:other".encode(), b"\xff\r\n")
    assert await client.call("PUBLISH", key, "lost") == 0


@pytest.mark.parametrize("kind", ["channel", "pattern", "shard"])
async def test_every_kind_of_channel(
    client: NodeClient, kind: Literal["channel", "pattern", "shard"]
) -> None:
    """Channels, patterns and shard channels work alike; a pattern's message names both."""
    name = "kinds:?" if kind == "pattern" else "kinds:1"
    async with client.subscribe(name, kind=kind) as messages:
        await client.call("SPUBLISH" if kind == "shard" else "PUBLISH", "kinds:1", "hello")
        pattern = b"kinds:?" if kind == "pattern" else None
        assert await anext(messages) == Message(b"kinds:1", b"hello", pattern)


async def test_subscribers_share_one_connection(client: NodeClient, server: Valkey, key: str) -> None:
    """However many subscriptions there are, the server sees one connection."""
    async with (
        client.subscribe(key) as first,
        client.subscribe(key) as second,
        client.subscribe("n*", kind="pattern"),
    ):
        assert _connections(server) == 1
        await client.call("PUBLISH", key, "both")
        assert (await anext(first)).data == (await anext(second)).data == b"both"
    assert str(server.ask("PUBSUB", "CHANNELS")) == "[]"


async def test_names_given_twice_or_not_at_all(client: NodeClient, key: str) -> None:
    """A message on a channel named twice arrives once, and a subscription without channels is refused."""
    async with client.subscribe(key, key) as messages:
        await client.call("PUBLISH", key, "once")
        await client.call("PUBLISH", key, "then")
        assert [(await anext(messages)).data for _ in range(2)] == [b"once", b"then"]
    with pytest.raises(UnsupportedCommand, match="at least one channel"):
        client.subscribe()


async def test_one_leaves_and_the_other_stays(client: NodeClient, key: str) -> None:
    """A channel is unsubscribed when its last subscriber leaves, not before."""
    async with client.subscribe(key) as staying:
        async with client.subscribe(key):
            pass
        assert await client.call("PUBLISH", key, "still here") == 1
        assert (await anext(staying)).data == b"still here"


async def test_leaving_and_joining_at_once(client: NodeClient, key: str) -> None:
    """Subscribers that join and leave a channel all the time never cost another subscriber a message."""

    async def visit(turn: int) -> None:
        for _ in range(20):
            async with client.subscribe(key, f"{key}:{turn}"):
                pass

    async with client.subscribe(key) as steady:
        visits = [asyncio.create_task(visit(turn)) for turn in range(10)]
        for n in range(200):
            await client.call("PUBLISH", key, n)
        await asyncio.gather(*visits)
        assert [int((await anext(steady)).data) for _ in range(200)] == list(range(200))


async def test_many_wait_for_the_same_subscription(client: NodeClient, key: str) -> None:
    """Several tasks may take messages from one subscription, each message goes to one of them."""
    async with client.subscribe(key) as messages:
        takers = [asyncio.create_task(anext(messages)) for _ in range(5)]
        await asyncio.sleep(0)
        takers[0].cancel()
        for n in range(4):
            await client.call("PUBLISH", key, n)
        taken = await asyncio.wait_for(asyncio.gather(*takers[1:]), 60)
        assert {int(message.data) for message in taken} == set(range(4))


async def test_a_slow_subscriber_gets_a_lost_mark(client: NodeClient, key: str) -> None:
    """A subscriber that falls behind buffers few messages and gets a mark on every channel."""
    slow = Subscription(client.hub, "channel", [key, f"{key}:other"], backlog=10)
    async with slow as messages, client.subscribe(key) as quick:
        await client.call("PUBLISH", f"{key}:other", "dropped as well")
        for n in range(1000):
            await client.call("PUBLISH", key, n)
        assert len(messages._messages) <= 10
        seen = [await anext(messages) for _ in range(len(messages._messages))]
        assert {message.channel for message in seen if message.lost} == {
            key.encode(),
            f"{key}:other".encode(),
        }
        assert not any(message.data for message in seen if message.lost)
        assert [int((await anext(quick)).data) for _ in range(1000)] == list(range(1000))


async def test_a_channel_that_is_not_allowed() -> None:
    """Subscribing to a channel that the user's ACL forbids is an error, and leaves nothing behind."""
    with embedded.valkey() as server:
        server.ask("ACL", "SETUSER", "ann", "on", ">pw", "+@all", "~*", "resetchannels", "&open:*")
        async with node_client(f"redis://ann:pw@127.0.0.1:{server.port}") as client:
            with pytest.raises(ServerError, match="NOPERM"):
                async with client.subscribe("open:1", "closed:1"):
                    pass
            assert not client.hub._subscribers
            async with client.subscribe("open:1") as messages:
                server.ask("PUBLISH", "open:1", "hello")
                assert (await anext(messages)).data == b"hello"


async def test_a_withdrawn_permission_ends_the_subscription() -> None:
    """When resubscribing after a lost connection is refused, the subscriber gets the error."""
    with embedded.valkey() as server:
        server.ask("ACL", "SETUSER", "ann", "on", ">pw", "+@all", "~*", "resetchannels", "&a", "&b")
        async with node_client(f"redis://ann:pw@127.0.0.1:{server.port}") as client:
            async with client.subscribe("a") as kept, client.subscribe("b") as lost:
                server.ask("ACL", "SETUSER", "ann", "resetchannels", "&a")
                with pytest.raises(ServerError, match="NOPERM"):
                    await asyncio.wait_for(anext(lost), 60)
                assert await asyncio.wait_for(anext(kept), 60) == Message(b"a", b"", lost=True)


async def test_closing_ends_the_iteration(server: Valkey, key: str) -> None:
    """When the client is closed, subscribers get the messages that had arrived, and their loop ends."""
    async with node_client(server.url) as client:
        subscription = client.subscribe(key)
        messages = await subscription.__aenter__()
        await client.call("PUBLISH", key, "last")
        await eventually(lambda: messages._messages)
    assert [message.data async for message in messages] == [b"last"]
    await subscription.__aexit__(None, None, None)
    with pytest.raises(StoreClosed):
        await client.subscribe(key).__aenter__()


async def test_closing_while_subscribing(server: Valkey, key: str) -> None:
    """A subscription that is being opened while the client closes fails, and leaves no connection."""
    async with node_client(server.url) as client:
        joining = asyncio.ensure_future(client.subscribe(key).__aenter__())
        await asyncio.sleep(0)
    with pytest.raises(StoreClosed):
        await joining
    await eventually(lambda: _connections(server) == 0)
    assert len(asyncio.all_tasks()) == 1


async def test_cancelled_while_subscribing(client: NodeClient, server: Valkey, key: str) -> None:
    """A caller cancelled at any moment of subscribing leaves no subscription behind."""
    for moments in range(12):
        joining = asyncio.ensure_future(client.subscribe(f"{key}:{moments}").__aenter__())
        for _ in range(moments):
            await asyncio.sleep(0)
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)
        if not joining.cancelled():
            await client.hub.leave(joining.result(), joining.result()._channels)
    async with client.subscribe(key):
        assert server.ask("PUBSUB", "CHANNELS", f"{key}*") == [key]
    assert not client.hub._subscribers


async def test_subscriptions_do_not_use_the_callers_connection(client: NodeClient, key: str) -> None:
    """Messages and replies use different connections, so a flood of messages delays no call."""
    async with client.subscribe(key):
        assert not connection_of(client).waiting
        assert b"sub=0" in await client.call("CLIENT", "INFO")
