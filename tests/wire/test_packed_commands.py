"""Prepared scripts and packed reads behave as `run` and `call` do."""

from __future__ import annotations

import asyncio

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Valkey
from ephemera.errors import ConnectionFailed, Unavailable
from ephemera.wire import Client, NodeClient, PreparedScript, Script, key_slot, open_client, packed_read_parts
from ephemera.wire._packed_commands import packed_key
from tests.wire.conditions import answered

ADD = Script("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")


@pytest.mark.standalone("it empties the scripts of one server")
async def test_it_runs_as_often_as_it_is_sent(server: Valkey, key: str) -> None:
    """A hundred at once, and again after SCRIPT FLUSH."""
    async with open_client(server.url) as client:
        add = PreparedScript(ADD, [key], [2])
        await asyncio.gather(*(client.send(add) for _ in range(100)))
        await client.call("SCRIPT", "FLUSH")
        assert await client.send(add) == 202
        await client.call("DEL", key)


async def test_it_waits_for_its_turn_at_the_limit(server: Valkey, key: str) -> None:
    """More than may be in flight are sent in order."""
    async with open_client(f"{server.url}?max_in_flight=10") as client:
        add = PreparedScript(ADD, [key], [1])
        counts = await asyncio.gather(*(client.send(add) for _ in range(500)))
        assert counts == list(range(1, 501))
        await client.call("DEL", key)


async def test_it_goes_to_the_node_of_its_keys(cluster: Cluster, key: str) -> None:
    """On a cluster the slot of its first key decides."""
    async with open_client(cluster.url) as client:
        for number in range(50):
            name = f"{key}:{number}"
            prepared = PreparedScript(ADD, [name], [number])
            assert prepared.slot == key_slot(name)
            assert await client.send(prepared) == number
            await client.call("DEL", name)


async def _until_it_fails(client: Client, prepared: PreparedScript) -> None:
    while True:
        await client.send(prepared)


async def test_down_means_down(key: str) -> None:
    """Without a server it fails at once, and works again once the server is back."""
    with embedded.valkey() as server:
        async with open_client(server.url) as client:
            add = PreparedScript(ADD, [key], [1])
            server.kill()
            with pytest.raises(ConnectionFailed):
                await _until_it_fails(client, add)
            with pytest.raises(Unavailable):
                client.send(add)
            server.restart()
            await answered(lambda: client.send(add))
            assert await client.call("GET", key) == b"1"


def packed_read(before: str, value: str, after: str = "") -> bytes:
    """A GET as accessors pack it."""
    heads, end = packed_read_parts("GET", before, after, len(value))
    return (heads[len(value)] + value + end).encode()


def test_a_packed_read_follows_the_protocol() -> None:
    """It has the command and its key with their lengths, and the key can be found in it."""
    packed = packed_read("card:", "ada", ":front")
    assert packed == b"*2\r\n$3\r\nGET\r\n$14\r\ncard:ada:front\r\n"
    assert packed_key(packed) == b"card:ada:front"
    assert packed_key(b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n") == b"a\r\nb"


async def test_packed_reads_wait_for_their_turn_at_the_limit(server: Valkey, key: str) -> None:
    """More than may be in flight are answered in order, among other commands."""
    async with open_client(f"{server.url}?max_in_flight=10") as client:
        read = packed_read(key, "")
        counts = [client.call("INCR", key) if turn % 2 else client.send(read) for turn in range(500)]
        replies = await asyncio.gather(*counts)
        assert replies[1::2] == list(range(1, 251))
        assert replies[2::2] == [b"%d" % turn for turn in range(1, 250)]
        await client.call("DEL", key)


async def test_a_packed_read_goes_to_the_node_of_its_key(cluster: Cluster, key: str) -> None:
    """On a cluster the key decides, even where reads go to replicas."""
    async with (
        open_client(cluster.url) as client,
        open_client(f"{cluster.url}{'&' if '?' in cluster.url else '?'}read_from=replicas") as reader,
    ):
        for number in range(50):
            await client.call("SET", f"{key}:{number}", number)
            assert await client.send(packed_read(f"{key}:", str(number))) == b"%d" % number

        async def replicated() -> bool:
            return [await reader.send(packed_read(f"{key}:", str(n))) for n in range(50)] == [
                b"%d" % n for n in range(50)
            ]

        async with asyncio.timeout(60):
            while not await replicated():
                await asyncio.sleep(0.01)
        for number in range(50):
            await client.call("DEL", f"{key}:{number}")


@pytest.mark.standalone("it cuts the one connection of its client")
async def test_a_packed_read_is_repeated_when_the_connection_is_lost(server: Valkey, key: str) -> None:
    """As every read: one in flight when its connection is lost is answered by the next one."""
    async with open_client(server.url) as client:
        assert isinstance(client, NodeClient)
        await client.call("SET", key, "here")
        waiting = client.send(packed_read(key, ""))
        await asyncio.sleep(0)  # it is sent at the end of this tick
        assert client.link.in_flight == 1
        client.link.drop("cut by a test")
        assert await waiting == b"here"
        assert client.link.connection_count == 2
        await client.call("DEL", key)


def test_its_repr_hides_its_arguments() -> None:
    """They may be secret, and a logged command is written as text in one way or another."""
    prepared = PreparedScript(ADD, ["counter"], ["a secret"])
    for text in (repr(prepared), str(prepared)):
        assert text == f"<{ADD.name} prepared for 'counter'>"
