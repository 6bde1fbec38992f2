"""The store: roles, binding, counts, one round trip per operation, and a server that is down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Valkey
from ephemera.errors import (
    ConnectionFailed,
    InvalidDeclaration,
    OutcomeUnknown,
    OverlappingPatterns,
    ServerError,
    Unavailable,
    UndeclaredKeyspace,
)
from ephemera.keyspace import Catalogue, Store, connect, fixed, is_outage, permanent
from ephemera.wire import Arg, Client, Script, open_client
from tests.keyspace.every_kind import ANN, KEYSPACES, KINDS, OPERATIONS, catalogue

HASH, VALUE = KEYSPACES["hash", "fixed"], KEYSPACES["value", "fixed"]


class Counting:
    """A client that records what is sent through it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.sent: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def call(self, *args: Arg, timeout: float | None = None) -> Awaitable[Any]:
        """Note the command and send it."""
        self.sent.append(str(args[0]))
        return self._client.call(*args, timeout=timeout)

    def run(
        self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = (), *, timeout: float | None = None
    ) -> Awaitable[Any]:
        """Note the script and run it."""
        self.sent.append(script.name)
        return self._client.run(script, keys, args, timeout=timeout)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lifetime", ["fixed", "sliding"])
async def test_every_operation_is_one_round_trip(store: Store, key: str, kind: str, lifetime: str) -> None:
    """Each is one command or script; the renewal of a sliding read is sent with the read."""
    counting = Counting(store.client())
    access = Store({"cache": counting, "queue": counting}, catalogue)[KEYSPACES[kind, lifetime]]
    operations = OPERATIONS[kind]
    for operation in filter(None, (operations.write, operations.put, operations.change, operations.read)):
        counting.sent.clear()
        await operation(access, id=key)
        renewal = ["PEXPIRE"] if operation is operations.read and lifetime == "sliding" else []
        assert counting.sent[1:] == ([] if kind in ("value", "flag") else renewal)


async def test_a_batch_leaves_in_one_tick(store: Store, key: str) -> None:
    """All commands of a batch are issued before the first reply is awaited."""
    counting = Counting(store.client())
    access = Store({"cache": counting, "queue": counting}, catalogue)[HASH]
    reading = asyncio.ensure_future(access.get_many([{"id": f"{key}{n}"} for n in range(100)]))
    await asyncio.sleep(0)
    assert counting.sent == ["HMGET"] * 100
    assert await reading == [None] * 100


async def test_an_accessor_is_bound_once(store: Store) -> None:
    """`store[KEYSPACE]` is the same object every time."""
    assert store[HASH] is store[HASH]
    assert store[HASH] is not store[VALUE]


async def test_a_keyspace_of_another_catalogue_is_refused(server: Valkey) -> None:
    """The error names the pattern, its catalogue and those that the store has."""
    async with connect(server.url, Catalogue("mine")) as store:
        with pytest.raises(
            UndeclaredKeyspace, match=r"'test:hash:fixed:\{id\}' belongs to the catalogue 'test', .*'mine'"
        ):
            store[HASH]


async def test_a_store_without_a_catalogue_takes_calls(server: Valkey, key: str) -> None:
    """`connect(url)` is enough for plain commands."""
    async with connect(server.url) as store:
        await store.call("SET", key, "x", "PX", 60_000)
        assert await store.call("GET", key) == b"x"


async def test_catalogues_of_one_store_must_not_overlap(server: Valkey) -> None:
    """They share their servers, so their keys and their names must differ."""
    one, other = Catalogue("one"), Catalogue("other")
    one.flag("lock:{x}", lifetime=fixed(hours=1), purpose="x")
    other.flag("lock:{y}", lifetime=fixed(hours=1), purpose="x")
    with pytest.raises(OverlappingPatterns, match=r"'lock:\{y\}': overlaps 'lock:\{x\}'"):
        async with connect(server.url, one, other):
            pass
    with pytest.raises(InvalidDeclaration, match="two catalogues have this name"):
        async with connect(server.url, one, Catalogue("one")):
            pass


@pytest.mark.standalone("it looks for two keys at once, which live on two nodes")
async def test_roles_have_their_own_servers(server: Valkey, key: str) -> None:
    """A keyspace of role queue is stored on the server of `queue_url` only."""
    kept = Catalogue("roles")
    cache = kept.value("role:cache:{id}", str, lifetime=fixed(hours=1), purpose="x")
    queue = kept.value("role:queue:{id}", str, lifetime=permanent(reason="x"), role="queue", purpose="x")
    with embedded.valkey() as second:
        async with connect(server.url, kept, queue_url=second.url) as store:
            await store[cache].put("c", id=key)
            await store[queue].put("q", id=key)
            assert await store.client("queue").call("EXISTS", queue.key(id=key), cache.key(id=key)) == 1
            assert await store.call("EXISTS", queue.key(id=key), cache.key(id=key)) == 1
            assert await store[queue].get(id=key) == "q"


async def test_hits_misses_and_writes_are_counted(store: Store, key: str) -> None:
    """Each keyspace has its counts, an undecodable value is a counted miss, a batch counts its keys."""
    value = store[VALUE]
    await value.get(id=key)
    await value.put(ANN, id=key)
    await value.get(id=key)
    await value.get_many([{"id": key}, {"id": key + "none"}])
    await store.call("SET", VALUE.key(id=key), "not ours")
    await value.get(id=key)
    await value.delete(id=key)
    stats = store.stats[VALUE]
    assert stats is value.stats
    assert (stats.hits, stats.misses, stats.writes, stats.errors, stats.undecodable) == (2, 3, 2, 0, 1)
    assert stats.hit_ratio == 0.4
    assert store[HASH].stats.hit_ratio is None


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_of_the_server_are_counted_and_raised(store: Store, key: str, kind: str) -> None:
    """A key of the wrong type is an error with its key in it, not a miss."""
    space = KEYSPACES[kind, "sliding"]
    wrong = ("SET", "x") if space.redis_type != "string" else ("SADD", "x")
    await store.call(wrong[0], space.key(id=key), wrong[1])
    operation = OPERATIONS[kind].read if kind != "flag" else None
    for attempt in filter(None, (operation, OPERATIONS[kind].change)):
        before = store[space].stats.errors
        with pytest.raises(ServerError, match="WRONGTYPE"):
            await attempt(store[space], id=key)
        assert store[space].stats.errors == before + 1


@pytest.mark.parametrize(
    ("problem", "outage"),
    [
        (Unavailable("a:1", "gone"), True),
        (OutcomeUnknown("a:1", "gone"), True),
        (ServerError("OOM command not allowed when used memory > 'maxmemory'."), True),
        (ServerError("READONLY You can't write against a read only replica."), True),
        (ServerError("WRONGTYPE Operation against a key"), False),
        (ServerError("NOPERM this user has no permissions"), False),
        (TypeError("a mistake"), False),
    ],
)
def test_an_outage_is_not_a_mistake(problem: Exception, outage: bool) -> None:
    """A server that is unreachable or cannot write now is an outage; a refusal of what was asked is not."""
    assert is_outage(problem) is outage


async def test_a_server_that_is_down(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every operation fails at once with `ConnectionFailed`, is counted, and no exception is left behind."""
    with embedded.valkey() as mine:
        async with connect(mine.url, catalogue) as store:
            client = store.client()
            await store[HASH].put(ANN, id=key)
            batch = asyncio.ensure_future(store[HASH].get_many([{"id": key}] * 50))
            await asyncio.sleep(0)
            mine.kill()
            await asyncio.wait([batch])
            while client.up:
                await asyncio.sleep(0.01)
            for space in KEYSPACES.values():
                if str(space.lifetime) != "until its instant":
                    for operation in filter(None, OPERATIONS[space.kind]):
                        with pytest.raises(Unavailable):
                            await operation(store[space], id=key)
                    assert store[space].stats.errors >= 2
    if error := batch.exception():
        assert isinstance(error, ConnectionFailed)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_batch_on_a_cluster_is_a_round_trip_to_each_node(cluster: Cluster, key: str) -> None:
    """Three hundred keys are read, written and deleted in one round trip per master, not one per key.

    What leaves for a server together may arrive in a few parts, and the observer's question, a PING and what
    replicas say count as well; a round trip per key would make about a hundred reads at each.
    """

    async def arrivals(client: Client) -> list[int]:
        said = [(await node.call("INFO", "stats")).decode() for node in client.nodes()]
        return [int(text.split("total_reads_processed:")[1].split()[0]) for text in said]

    items = [({"id": f"{key}{number}"}, ANN) for number in range(300)]
    keys = [fields for fields, _ in items]
    async with connect(cluster.url, catalogue) as store, open_client(cluster.url) as observer:
        access = store[VALUE]
        batches: list[tuple[Callable[[Any], Awaitable[Any]], Any]] = [
            (access.put_many, items),
            (access.get_many, keys),
            (access.delete_many, keys),
        ]
        for operation, batch in batches:
            before = await arrivals(observer)
            await operation(batch)
            after = await arrivals(observer)
            assert all(1 < now - then <= 30 for then, now in zip(before, after, strict=True)), (before, after)


async def test_a_cluster(cluster: Cluster, key: str) -> None:
    """Every kind works on a cluster, and batches spread over its nodes."""
    async with connect(cluster.url, catalogue) as store:
        for kind in KINDS:
            access = store[KEYSPACES[kind, "sliding"]]
            assert await OPERATIONS[kind].write(access, id=key)
            assert await OPERATIONS[kind].read(access, id=key)
        ids = [{"id": f"{key}{n}"} for n in range(200)]
        assert await store[HASH].put_many((fields, ANN) for fields in ids) == 200
        assert await store[HASH].get_many(ids) == [ANN] * 200
        assert await store[HASH].delete_many(ids) == 200
