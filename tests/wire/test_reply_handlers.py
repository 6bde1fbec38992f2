"""Runs that settle what they are given: as good as a run in every respect, and they never raise."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis
import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Valkey
from ephemera.errors import ConnectionFailed, OutcomeUnknown, ServerError, StoreClosed, Unavailable
from ephemera.wire import Client, NodeClient, Script, ScriptPrefix, open_client, pack_argument
from tests.wire.conditions import answered

ADD = Script(
    "add_all", "for n = 2, #ARGV do redis.call('INCRBY', KEYS[1], ARGV[1] * ARGV[n]) end return 'OK'"
)


def _run(client: Client, key: str, *amounts: int, times: int = 1) -> asyncio.Future[Any]:
    reply = asyncio.get_running_loop().create_future()
    client.send_to(reply, ScriptPrefix(ADD, [key], [times]).with_arguments(list(map(pack_argument, amounts))))
    return reply


def test_it_is_packed_as_any_command() -> None:
    """What is put together of its parts is what the protocol's own packer makes of the words."""
    words = ("EVALSHA", ADD.sha, 2, "a key", b"\xff\r\n", "", 7, "grün", -12)
    beginning = ScriptPrefix(ADD, ["a key", b"\xff\r\n"], [""])
    arguments = [pack_argument(word) for word in (7, "grün", -12)]
    pack: Any = hiredis.pack_command
    assert beginning.with_arguments(arguments) == pack(words)
    assert (beginning.script, beginning.key) == (ADD, "a key")


@pytest.mark.standalone("it empties the scripts of one server")
async def test_its_reply_settles_what_it_was_given(server: Valkey, key: str) -> None:
    """One with few arguments and one with many, and again after the server forgot the script."""
    async with open_client(server.url) as client:
        for amounts in ([1, 2], [1] * 100):
            await client.call("SCRIPT", "FLUSH")
            assert await _run(client, key, *amounts, times=3) == b"OK"
        assert await client.call("GETDEL", key) == b"309"


async def test_an_error_of_the_server_settles_it(server: Valkey, key: str) -> None:
    """With the script and the key in it, as of every command."""
    async with open_client(server.url) as client:
        await client.call("SET", key, "text")
        with pytest.raises(ServerError, match="not an integer") as caught:
            await _run(client, key, 1)
        assert key in str(caught.value)
        await client.call("DEL", key)


async def test_it_waits_for_its_turn_in_a_crowd(server: Valkey, key: str) -> None:
    """More than may be in flight are sent in their order, whatever their size."""
    async with open_client(f"{server.url}?max_in_flight=10") as client:
        await _run(client, key, 0)  # what the server does not know yet is sent again, behind the others
        replies = []
        for turn in range(200):
            replies += [_run(client, key, *[1] * (1 + turn % 40)), client.call("GET", key)]
        found = (await asyncio.gather(*replies))[1::2]
        sums = [sum(1 + turn % 40 for turn in range(last + 1)) for last in range(200)]
        assert [int(value) for value in found] == sums
        await client.call("DEL", key)


async def test_it_goes_to_the_node_of_its_keys(cluster: Cluster, key: str) -> None:
    """On a cluster the slot of its first key decides."""
    async with open_client(cluster.url) as client:
        names = [f"{key}:{number}" for number in range(50)]
        assert set(await asyncio.gather(*(_run(client, name, 1) for name in names))) == {b"OK"}
        for name in names:
            assert await client.call("GETDEL", name) == b"1"


async def _for_ever(client: Client, key: str) -> None:
    while True:
        await _run(client, key, 1)


async def test_down_means_down(key: str) -> None:
    """Without a server it is settled at once, and goes on when there is one again; a closed store says so."""
    with embedded.valkey() as server:
        async with open_client(server.url) as client:
            server.kill()
            with pytest.raises(ConnectionFailed):
                await _for_ever(client, key)
            down = _run(client, key, 1)
            assert isinstance(down.exception(), Unavailable)
            server.restart()
            await answered(lambda: _run(client, key, 1))
            assert await client.call("GET", key) == b"1"
        assert isinstance(_run(client, key, 1).exception(), StoreClosed)


async def test_a_cluster_that_is_closed_says_so(cluster: Cluster, key: str) -> None:
    """There is nobody to raise to: who waits must hear of it."""
    async with open_client(cluster.url) as client:
        pass
    assert isinstance(_run(client, key, 1).exception(), StoreClosed)


async def test_a_cluster_that_was_never_there_says_so(key: str) -> None:
    """Where no node serves its key, it is settled as well."""
    async with open_client("redis+cluster://127.0.0.1:1", required=False) as client:
        assert isinstance(_run(client, key, 1).exception(), Unavailable)


@pytest.mark.standalone("it cuts the one connection of its client")
async def test_nobody_knows_the_outcome_of_what_was_under_way(server: Valkey, key: str) -> None:
    """It had left when its connection died: whether it was run, only its caller can find out."""
    async with open_client(server.url) as client:
        assert isinstance(client, NodeClient)
        waiting = _run(client, key, *[1] * 100)
        await asyncio.sleep(0)  # it is sent at the end of this tick
        assert client.link.in_flight == 1
        client.link.drop("cut by a test")
        with pytest.raises(OutcomeUnknown):
            await waiting
        await answered(lambda: client.call("DEL", key))
