"""Hot keys: found by a short sample of what the servers execute, and never shown if they may be secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Valkey
from ephemera.errors import ServerError
from ephemera.keyspace import Catalogue, fixed
from ephemera.operations.health import HotKey, find_hot_keys
from ephemera.wire import Arg, Script, open_client
from ephemera.wire._command_sample import sample_commands
from tests.wire.clients import node_client

shop = Catalogue("hotshop")
PAGE = shop.value("hotshop:page:{id}", str, lifetime=fixed(hours=1), purpose="x")
LOGIN = shop.value("hotshop:login:{id}", str, lifetime=fixed(hours=1), sensitive=True, purpose="x")
TWO_READS = Script("two_reads", "redis.call('GET', KEYS[2]) return redis.call('GET', KEYS[2])")


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    """A server that gets no other commands than those of the test."""
    with embedded.valkey() as server:
        yield server


async def _found(url: str, load: list[tuple[Arg, ...]], at_most: int = 2000) -> list[HotKey]:
    """The hot keys that are found while these commands are repeated."""
    async with open_client(url) as client:
        search = asyncio.create_task(find_hot_keys(url, [shop], seconds=60, at_most=at_most))
        while not search.done():
            await asyncio.gather(*(client.call(*words) for words in load))
        return await search


async def test_keys_above_their_share_are_found(valkey: Valkey) -> None:
    """A key with a quarter of the commands is listed with its pattern and command; one with 1 % is not."""
    load: list[tuple[Arg, ...]] = [("GET", "hotshop:page:1")] * 25
    load += [("GET", f"hotshop:page:9{each}") for each in range(75)]
    [hot] = await _found(valkey.url, load)
    assert (hot.key, hot.pattern, hot.command) == ("hotshop:page:1", "hotshop:page:{id}", "GET")
    assert hot.share == pytest.approx(0.25, abs=0.05)
    assert hot.per_second > 0
    assert hot.server.endswith(str(valkey.port))


async def test_names_are_read_as_the_server_escapes_them(valkey: Valkey) -> None:
    """Quotes and line ends in a key are those of the key; of a sensitive keyspace the pattern is shown."""
    load: list[tuple[Arg, ...]] = [("get", 'odd:"q\\\n'), ("SET", "hotshop:login:ann", 'a "value" of it')]
    found = {(hot.key, hot.pattern, hot.command) for hot in await _found(valkey.url, load)}
    assert found == {
        ('odd:"q\\\\n', None, "GET"),
        ("hotshop:login:{id}", "hotshop:login:{id}", "SET"),
    }


async def test_a_script_counts_under_its_first_key(valkey: Valkey) -> None:
    """What a script does inside the server is not counted again."""
    load: list[tuple[Arg, ...]] = [("EVAL", TWO_READS.source, 2, "hotshop:page:a", "hotshop:page:b")]
    [hot] = await _found(valkey.url, load)
    assert (hot.key, hot.command, hot.share) == ("hotshop:page:a", "EVAL", 1)


async def test_a_few_commands_say_nothing(valkey: Valkey) -> None:
    """No key is hot on a server that is idle, although one key gets all the commands."""
    assert await _found(valkey.url, [("GET", "hotshop:page:1")], at_most=150) == []


async def test_each_master_of_a_cluster_is_listened_to(cluster: Cluster) -> None:
    """A key is hot by its share of its own node, and the node is named."""
    load: list[tuple[Arg, ...]] = [("GET", f"hotshop:page:{letter}") for letter in "abcdef"]
    found = await _found(cluster.url, load, at_most=400)
    assert {hot.key for hot in found} == {f"hotshop:page:{letter}" for letter in "abcdef"}
    assert len({hot.server for hot in found}) > 1


async def test_a_sample_ends_in_time(valkey: Valkey) -> None:
    """An idle server neither fails the sample nor makes it last longer than it was asked to."""
    async with node_client(valkey.url) as client:
        impatient = replace(client.endpoint, target=replace(client.endpoint.target, timeout=0.1))
        async with asyncio.timeout(30):
            assert await sample_commands(impatient, 0.5, 10) == []


async def test_a_user_who_may_not_listen_is_refused(valkey: Valkey) -> None:
    """The server's error is raised, not taken for a server without hot keys."""
    valkey.ask("ACL", "SETUSER", "watcher", "on", ">pw", "~*", "+@all", "-monitor")
    with pytest.raises(ServerError, match="monitor"):
        await find_hot_keys(f"redis://watcher:pw@127.0.0.1:{valkey.port}", seconds=30)


async def test_a_server_that_dies_leaves_what_was_seen() -> None:
    """A sample whose connection ends has the lines from before."""
    with embedded.valkey() as server:
        async with node_client(server.url) as client:
            sample = asyncio.create_task(client.sample_commands(60, 100_000))
            while "cmd=monitor" not in str(server.ask("CLIENT", "LIST")):
                await asyncio.sleep(0.01)
            await client.call("SET", "seen", "1")
            server.kill()
            assert any(b'"SET" "seen"' in line for line in await sample)
