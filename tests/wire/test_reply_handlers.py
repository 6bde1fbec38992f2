"""`send_to`: the outcome goes to a reply handler, whatever it is, and nothing is raised."""

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


def test_a_script_prefix_packs_as_any_command() -> None:
    """A prefix with its arguments is what hiredis packs from the whole command."""
    words = ("EVALSHA", ADD.sha, 2, "a key", b"\xff\r\n", "", 7, "grün", -12)
    prefix = ScriptPrefix(ADD, ["a key", b"\xff\r\n"], [""])
    arguments = [pack_argument(word) for word in (7, "grün", -12)]
    pack: Any = hiredis.pack_command
    assert prefix.with_arguments(arguments) == pack(words)
    assert (prefix.script, prefix.key) == (ADD, "a key")


@pytest.mark.standalone("it empties the scripts of one server")
async def test_the_reply_goes_to_the_handler(server: Valkey, key: str) -> None:
    """With few arguments and with many, and again after SCRIPT FLUSH."""
    async with open_client(server.url) as client:
        for amounts in ([1, 2], [1] * 100):
            await client.call("SCRIPT", "FLUSH")
            assert await _run(client, key, *amounts, times=3) == b"OK"
        assert await client.call("GETDEL", key) == b"309"


async def test_a_server_error_goes_to_the_handler(server: Valkey, key: str) -> None:
    """The error contains the key, as for every command."""
    async with open_client(server.url) as client:
        await client.call("SET", key, "text")
        with pytest.raises(ServerError, match="not an integer") as caught:
            await _run(client, key, 1)
        assert key in str(caught.value)
        await client.call("DEL", key)


async def test_it_waits_for_its_turn_at_the_limit(server: Valkey, key: str) -> None:
    """More than may be in flight are sent in order, whatever their size."""
    async with open_client(f"{server.url}?max_in_flight=10") as client:
        await _run(
            client, key, 0
        )  # a script that the server does not know yet is sent again, behind the others
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


async def _until_it_fails(client: Client, key: str) -> None:
    while True:
        await _run(client, key, 1)


async def test_down_means_down(key: str) -> None:
    """It fails at once without a server, works again once that is back, and fails on a closed store."""
    with embedded.valkey() as server:
        async with open_client(server.url) as client:
            server.kill()
            with pytest.raises(ConnectionFailed):
                await _until_it_fails(client, key)
            down = _run(client, key, 1)
            assert isinstance(down.exception(), Unavailable)
            server.restart()
            await answered(lambda: _run(client, key, 1))
            assert await client.call("GET", key) == b"1"
        assert isinstance(_run(client, key, 1).exception(), StoreClosed)


async def test_a_closed_cluster_fails_the_handler(cluster: Cluster, key: str) -> None:
    """That the store is closed goes to the handler, too."""
    async with open_client(cluster.url) as client:
        pass
    assert isinstance(_run(client, key, 1).exception(), StoreClosed)


async def test_an_unreachable_cluster_fails_the_handler(key: str) -> None:
    """That no node serves the key goes to the handler, too."""
    async with open_client("redis+cluster://127.0.0.1:1", required=False) as client:
        assert isinstance(_run(client, key, 1).exception(), Unavailable)


@pytest.mark.standalone("it cuts the one connection of its client")
async def test_the_outcome_is_unknown_after_a_lost_connection(server: Valkey, key: str) -> None:
    """A script in flight when its connection is lost may have run: only its caller can find out."""
    async with open_client(server.url) as client:
        assert isinstance(client, NodeClient)
        waiting = _run(client, key, *[1] * 100)
        await asyncio.sleep(0)  # it is sent at the end of this tick
        assert client.link.in_flight == 1
        client.link.drop("cut by a test")
        with pytest.raises(OutcomeUnknown):
            await waiting
        await answered(lambda: client.call("DEL", key))
