"""A cluster: every command goes to the node of its key, and clear errors for those that cannot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemera.embedded import Cluster as Servers
from ephemera.errors import CrossSlot, ServerError, UnsupportedCommand
from ephemera.wire import Address, ClusterClient, Script, command_name, key_slot
from ephemera.wire._slots import parse_redirection
from tests.wire.clients import cluster_client


@pytest.fixture
async def client(cluster: Servers) -> AsyncIterator[ClusterClient]:
    """A client of the shared cluster."""
    async with cluster_client(cluster.url) as connected:
        yield connected


async def test_slots_are_those_of_the_server(client: ClusterClient) -> None:
    """The slot of a key is what CLUSTER KEYSLOT returns, for any bytes, with and without hash tags."""
    shapes = [b"", b"{}", b"{}x", b"{a}", b"a{b}c", b"{a}{b}", b"{{a}}", b"a}{b", b"a{b", b"{\xff}", b"}{"]
    keys = shapes + [
        bytes(random.choices(b"{}ab\x00\xff:" if n % 2 else range(256), k=random.randrange(1, 40)))
        for n in range(3000)
    ]
    slots = await asyncio.gather(*(client.call("CLUSTER", "KEYSLOT", key) for key in keys))
    assert [key_slot(key) for key in keys] == slots


@given(st.text(max_size=50) | st.integers() | st.floats(allow_nan=False))
def test_a_keys_slot_does_not_depend_on_its_type(key: str | float) -> None:
    """Text, numbers, bytes and memoryviews that are the same on the wire are in the same slot."""
    packed = str(key).encode()
    assert key_slot(key) == key_slot(packed) == key_slot(memoryview(packed))


async def test_keys_of_every_slot_are_reached(client: ClusterClient) -> None:
    """Keys of all slots are written and read at their nodes, each reply goes to its own caller."""
    keys = [f"every:{n}" for n in range(3000)]
    await asyncio.gather(*(client.call("SET", key, key) for key in keys))
    assert await asyncio.gather(*(client.call("GET", key) for key in keys)) == [key.encode() for key in keys]
    sizes = [await node.call("DBSIZE") for node in client.nodes()]
    assert len(sizes) == 3
    assert min(sizes) > 500
    await asyncio.gather(*(client.call("DEL", key) for key in keys))


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (("MGET", "a", "b", "c"), ["a", "b", "c"]),
        (("MSET", "a", 1, "b", 2), ["a", "b"]),
        (("SUNIONSTORE", "d", "a", "b"), ["d", "a", "b"]),
        (("ZUNIONSTORE", "d", 2, "a", "b"), ["d", "a", "b"]),
        (("BLPOP", "a", "b", 1), ["a", "b"]),
        (("EVAL", "return 1", 2, "a", "b"), ["a", "b"]),
        (("DEL", *"abcdefg"), ["a", "b", "c", "d"]),
    ],
)
async def test_keys_of_several_slots_are_named(
    client: ClusterClient, words: tuple[Any, ...], keys: list[str]
) -> None:
    """A command across slots fails with the command, its keys, their slots and what to do."""
    with pytest.raises(CrossSlot) as caught:
        await client.call(*words)
    message = str(caught.value)
    assert message.startswith(f"{command_name(words)}: CROSSSLOT its keys are in different slots")
    assert all(f"{key!r} in slot {key_slot(key)}" in message for key in keys)
    assert "common hash tag" in message
    assert ("and 3 more" in message) == (len(words) == 8)
    assert caught.value.code == "CROSSSLOT"


async def test_a_hash_tag_keeps_keys_together(client: ClusterClient) -> None:
    """Keys with a common hash tag may be used by one command, script or blocking call."""
    await client.call("MSET", "{tag}:1", "one", "{tag}:2", "two")
    assert await client.call("MGET", "{tag}:1", "{tag}:2") == [b"one", b"two"]
    both = Script("both", "return redis.call('MGET', KEYS[1], KEYS[2])")
    assert await client.run(both, ["{tag}:1", "{tag}:2"]) == [b"one", b"two"]
    assert await client.call("BLPOP", "{tag}:3", "{tag}:4", 0.01) is None
    await client.call("DEL", "{tag}:1", "{tag}:2")


async def test_scripts_run_where_their_keys_are(client: ClusterClient) -> None:
    """A script runs on the node of its key, even after SCRIPT FLUSH; without keys it runs on any."""
    append = Script("append to", "return redis.call('APPEND', KEYS[1], ARGV[1])")
    for node in client.nodes():
        await node.call("SCRIPT", "FLUSH")
    keys = [f"script:{n}" for n in range(50)]
    assert set(await asyncio.gather(*(client.run(append, [key], ["x"]) for key in keys))) == {1}
    assert await client.run(Script("none", "return ARGV[1]"), [], ["x"]) == b"x"
    await asyncio.gather(*(client.call("DEL", key) for key in keys))


@pytest.mark.parametrize(
    "words", [("DBSIZE",), ("FLUSHALL",), ("SCAN", 0), ("INFO",), ("CONFIG", "GET", "*"), ("KEYS", "*")]
)
async def test_a_command_about_one_server_must_name_its_node(
    client: ClusterClient, words: tuple[Any, ...]
) -> None:
    """A command without a key is refused, with advice on sending it to each node, unless any node will do."""
    with pytest.raises(UnsupportedCommand, match=r"for node in client.nodes\(\)"):
        client.call(*words)


async def test_commands_that_any_node_answers(client: ClusterClient) -> None:
    """Commands to which every node gives the same reply go to any node."""
    assert await client.call("PING") == b"PONG"
    assert await client.call("ECHO", "x") == b"x"
    assert len(await client.call("TIME")) == 2
    assert b"cluster_state:ok" in await client.call("CLUSTER", "INFO")


async def test_stateful_commands_are_refused_here_too(client: ClusterClient) -> None:
    """Commands that would change a shared connection are refused on a cluster as on a single server."""
    for words in (("MULTI",), ("SSUBSCRIBE", "x"), ("READONLY",), ("CLIENT", "REPLY", "OFF")):
        with pytest.raises(UnsupportedCommand):
            client.call(*words)


async def test_errors_name_their_command_and_key(client: ClusterClient) -> None:
    """A node's error reaches its caller with command and key, as from a single server."""
    await client.call("SET", "wrong", "text")
    with pytest.raises(ServerError) as caught:
        await client.call("INCR", "wrong")
    assert (caught.value.command, caught.value.key) == ("INCR", "wrong")
    await client.call("DEL", "wrong")


async def test_one_node_of_the_url_is_enough(cluster: Servers) -> None:
    """A URL with a single node, be it a replica, finds the whole cluster."""
    for node in (cluster.nodes[0], cluster.nodes[-1]):
        async with cluster_client(f"redis+cluster://:{node.password}@127.0.0.1:{node.port}") as client:
            assert client.up
            assert {n.endpoint.name for n in client.nodes()} == {
                f"127.0.0.1:{m.port}" for m in cluster.nodes[:3]
            }


@pytest.mark.parametrize(
    ("message", "address"),
    [
        ("MOVED 3999 10.0.0.1:6381", Address("10.0.0.1", 6381)),
        ("ASK 3999 ::1:6381", Address("::1", 6381)),
        ("MOVED 3999 :6381", Address("asked", 6381)),
        ("MOVED 3999 ?:6381", Address("asked", 6381)),
        ("MOVED 3999", None),
        ("MOVED 3999 nowhere", None),
        ("WRONGTYPE Operation", None),
    ],
)
def test_redirections_are_parsed(message: str, address: Address | None) -> None:
    """The address in MOVED and ASK is parsed, even when the node omits its host."""
    assert parse_redirection(message, Address("asked", 1)) == address
