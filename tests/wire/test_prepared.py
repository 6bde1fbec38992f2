"""Prepared runs: packed once, and as good as a run in every respect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ephemera import embedded
from ephemera.errors import ConnectionFailed, Unavailable
from ephemera.wire import Prepared, Script, open_client
from ephemera.wire.slots import slot_of
from tests.wire.waiting import answered

if TYPE_CHECKING:
    from ephemera.embedded import Cluster, Valkey
    from ephemera.wire import Client

ADD = Script("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")


@pytest.mark.standalone("it empties the scripts of one server")
async def test_it_runs_as_often_as_it_is_sent(server: Valkey, key: str) -> None:
    """A hundred at once, and again after the server forgot the script."""
    async with open_client(server.url) as client:
        add = Prepared(ADD, [key], [2])
        await asyncio.gather(*(client.run_prepared(add) for _ in range(100)))
        await client.call("SCRIPT", "FLUSH")
        assert await client.run_prepared(add) == 202
        await client.call("DEL", key)


async def test_it_waits_for_its_turn_in_a_crowd(server: Valkey, key: str) -> None:
    """More than may be in flight are sent in their order, prepared or not."""
    async with open_client(f"{server.url}?max_in_flight=10") as client:
        add = Prepared(ADD, [key], [1])
        counts = await asyncio.gather(*(client.run_prepared(add) for _ in range(500)))
        assert counts == list(range(1, 501))
        await client.call("DEL", key)


async def test_it_goes_to_the_node_of_its_keys(cluster: Cluster, key: str) -> None:
    """On a cluster the slot of its first key decides."""
    async with open_client(cluster.url) as client:
        for number in range(50):
            name = f"{key}:{number}"
            prepared = Prepared(ADD, [name], [number])
            assert prepared.slot == slot_of(name)
            assert await client.run_prepared(prepared) == number
            await client.call("DEL", name)


async def _for_ever(client: Client, prepared: Prepared) -> None:
    while True:
        await client.run_prepared(prepared)


async def test_down_means_down(key: str) -> None:
    """Without a server it fails at once, and goes on when there is one again."""
    with embedded.valkey() as server:
        async with open_client(server.url) as client:
            add = Prepared(ADD, [key], [1])
            server.kill()
            with pytest.raises(ConnectionFailed):
                await _for_ever(client, add)
            with pytest.raises(Unavailable):
                client.run_prepared(add)
            server.restart()
            await answered(lambda: client.run_prepared(add))
            assert await client.call("GET", key) == b"1"
