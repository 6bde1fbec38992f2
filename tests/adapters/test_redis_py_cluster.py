"""The client in place of `redis.asyncio.RedisCluster`: one connection to each node, and redirections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import cluster as stock
from redis.cluster import LoadBalancingStrategy
from redis.exceptions import RedisClusterException, RedisError, ResponseError, WatchError

from ephemera import embedded
from ephemera.adapters.redis_py import RedisCluster
from ephemera.embedded import Cluster
from ephemera.wire import key_slot
from tests.adapters.redis_clients import connections, eventually
from tests.chaos.slot_moves import Move, owner

pytestmark = pytest.mark.standalone("it has a cluster of its own")


@asynccontextmanager
async def ours(cluster: Cluster, kind: Any = RedisCluster, **options: Any) -> AsyncIterator[Any]:
    """A client of the cluster that knows one of its nodes at first."""
    url = cluster.url.replace("redis+cluster://", "redis://").partition(",")[0]
    async with kind.from_url(url, **options) as client:
        yield client


@pytest.fixture(scope="module")
def moving() -> Iterator[Cluster]:
    """A cluster whose slots move."""
    with embedded.cluster(node_timeout=60_000) as running:
        yield running


async def test_all_tasks_share_one_connection_to_each_node(cluster: Cluster, key: str) -> None:
    """Commands for all slots, and pipelines over several nodes, take one connection to each master.

    redis-py keeps the node that it starts from besides the one that it finds there, and asks it for COMMAND.
    """
    async with ours(cluster, client_name=key) as client:
        await asyncio.gather(*(client.set(f"{key}:{n}", n) for n in range(500)))
        assert await asyncio.gather(*(client.get(f"{key}:{n}") for n in range(500))) == [
            b"%d" % n for n in range(500)
        ]

        async def pipelined(n: int) -> list[Any]:
            pipe = client.pipeline()
            for m in range(10):
                pipe.get(f"{key}:{(n + 50 * m) % 500}")
            replies: list[Any] = await pipe.execute()
            return replies

        replies = await asyncio.gather(*(pipelined(n) for n in range(50)))
        assert replies == [[b"%d" % ((n + 50 * m) % 500) for m in range(10)] for n in range(50)]
        assert max(connections(node, key) for node in cluster.nodes) <= 3
    for node in cluster.nodes:
        await eventually(lambda node=node: connections(node, key) == 0)  # type: ignore[misc]


async def test_replicas_are_read(cluster: Cluster, key: str) -> None:
    """With a load balancing strategy, replicas answer reads: their connections are READONLY."""
    strategy = LoadBalancingStrategy.ROUND_ROBIN
    async with ours(cluster, client_name=key, load_balancing_strategy=strategy) as client:
        for n in range(20):
            await client.set(f"{key}:{n}", n)
            await client.wait(1, 10_000, target_nodes=client.get_node_from_key(f"{key}:{n}"))
        for _ in range(3):
            replies = await asyncio.gather(*(client.get(f"{key}:{n}") for n in range(20)))
            assert replies == [b"%d" % n for n in range(20)]
        assert all(connections(node, key) for node in cluster.nodes)


async def test_transactions_and_errors(cluster: Cluster, key: str) -> None:
    """A transaction of one slot is whole, a watched key is noticed, and errors are redis-py's."""
    async with ours(cluster) as client:
        tagged = f"{{{key}}}"
        pipe = client.pipeline(transaction=True)
        assert await pipe.incr(f"{tagged}:a").incr(f"{tagged}:b").execute() == [1, 1]
        async with client.pipeline(transaction=True) as watching:
            await watching.watch(f"{tagged}:a")
            await client.set(f"{tagged}:a", "changed")
            watching.multi()
            watching.set(f"{tagged}:a", "lost")
            with pytest.raises(WatchError):
                await watching.execute()
        with pytest.raises(ResponseError):
            await client.lpush(f"{tagged}:a", "x")
        replies = await client.pipeline().get(f"{tagged}:a").lpush(f"{tagged}:a", 1).execute(False)
        assert replies[0] == b"changed"
        assert isinstance(replies[1], ResponseError)


REFUSED: tuple[tuple[Any, ...], ...] = (
    ("LPUSH", "{key}", "x"),
    ("INCRBY", "{key}", "x"),
    ("MGET", "{key}", "other"),
    ("EVAL", "return redis.call('GET', KEYS[1])", 2, "{key}", "other"),
    ("EVALSHA", "0" * 40, 1, "{key}"),
    ("SET", "{key}", object()),
    *(("EVAL", f"return redis.error_reply('{code} why')", 1, "{key}") for code in ("OOM", "NOPERM")),
)


@pytest.mark.parametrize("words", REFUSED)
async def test_errors_are_those_of_redis_py(cluster: Cluster, key: str, words: tuple[Any, ...]) -> None:
    """Alone and in a pipeline, a refused command raises the same class with the same text."""
    name, *args = [w.format(key=key) if isinstance(w, str) else w for w in words]
    raised = []
    for kind in (stock.RedisCluster, RedisCluster):
        async with ours(cluster, kind) as client:
            await client.set(key, "text")
            pipeline = client.pipeline().get(key).execute_command(name, *args)
            for call in (client.execute_command(name, *args), pipeline.execute()):
                with pytest.raises((RedisError, RedisClusterException)) as caught:
                    await call
                raised.append((caught.type, str(caught.value)))
    assert raised[:2] == raised[2:]


async def test_cancelled_pipelines_leave_the_connections_in_order(cluster: Cluster, key: str) -> None:
    """Pipelines over several nodes are cancelled among others, which get their own replies."""
    async with ours(cluster, client_name=key) as client:
        await client.set(key, "there")  # reads the slot map

        async def pipelined(number: int) -> Any:
            pipe = client.pipeline()
            for n in range(10):
                pipe.set(f"{key}:{number}:{n}", number).get(f"{key}:{number}:{n}")
            return await pipe.execute()

        tasks = [asyncio.create_task(pipelined(number)) for number in range(100)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        done: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in done[::2])
        assert done[1::2] == [[True, b"%d" % number] * 10 for number in range(1, 100, 2)]
        assert await client.get(key) == b"there"
        assert max(connections(node, key) for node in cluster.nodes) <= 3


@pytest.mark.parametrize("turns", range(5))
async def test_closing_among_commands_leaves_no_connection(cluster: Cluster, key: str, turns: int) -> None:
    """redis-py closes its nodes when the slot map has changed; commands that were on their way run anyway."""
    async with ours(cluster, client_name=key) as client:
        calls = [asyncio.create_task(client.set(f"{key}:{n}", n)) for n in range(50)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.aclose()
        assert await asyncio.gather(*calls) == [True] * 50
        assert await client.get(f"{key}:7") == b"7"  # reads the slot map again: else nothing is closed below
    for node in cluster.nodes:
        await eventually(lambda node=node: connections(node, key) == 0)  # type: ignore[misc]


async def test_pipelines_follow_a_slot_that_moves(moving: Cluster) -> None:
    """While a slot moves, key by key, commands and pipelines of many tasks lose and repeat nothing.

    Keys are read where they are (ASK) and written where they belong, by their own task alone.
    """
    keys = [f"{{slot}}:{n}" for n in range(30)]
    slot = key_slot("slot")
    source = owner(moving, slot)
    target = next(node for node in moving.nodes if node is not source and node.role() == "master")
    counted = [0] * len(keys)
    over = asyncio.Event()
    async with ours(moving) as client:

        async def count(n: int) -> None:
            while not over.is_set():
                if n % 2:
                    assert await client.incr(keys[n]) == counted[n] + 1
                else:
                    assert await client.pipeline().incr(keys[n]).get(keys[n]).execute() == [
                        counted[n] + 1,
                        b"%d" % (counted[n] + 1),
                    ]
                counted[n] += 1

        tasks = [asyncio.create_task(count(n)) for n in range(len(keys))]
        try:
            for _ in Move(slot, source, target).steps():
                before = list(counted)
                await eventually(
                    lambda before=before: (  # type: ignore[misc]
                        all(a < b for a, b in zip(before, counted, strict=True))
                        or any(task.done() for task in tasks)
                    )
                )
        finally:
            over.set()
        await asyncio.gather(*tasks)
        assert [int(await client.get(key)) for key in keys] == counted
