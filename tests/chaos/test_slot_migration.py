"""Slots that move under load: callers see a little latency and no error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster as Servers
from ephemera.embedded import Valkey
from ephemera.errors import Unavailable
from ephemera.wire import ClusterClient, Script, key_slot
from tests.chaos.slot_moves import Move, node_id, owner
from tests.wire.clients import cluster_client
from tests.wire.conditions import eventually

pytestmark = pytest.mark.patient

_APPEND = Script(
    "append_and_measure", "redis.call('APPEND', KEYS[1], ARGV[1]) return redis.call('STRLEN', KEYS[1])"
)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Three masters, which this module moves slots between."""
    with embedded.cluster(masters=3, replicas=0, node_timeout=60_000) as running:
        yield running


def _move_of(servers: Servers, slot: int) -> Move:
    """The migration of a slot to the next master."""
    source = owner(servers, slot)
    target = servers.nodes[(servers.nodes.index(source) + 1) % 3]
    return Move(slot, source, target)


class _Caller:
    """A caller that counts in its own key, and checks that every reply is its own."""

    def __init__(self, client: ClusterClient, key: str) -> None:
        self.calls = 0
        self._client = client
        self._key = key

    async def run(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            self.calls += 1
            assert await self._client.call("INCR", f"{self._key}:n") == self.calls
            assert await self._client.call("GET", f"{self._key}:n") == b"%d" % self.calls
            assert await self._client.run(_APPEND, [f"{self._key}:s"], ["x"]) == self.calls


async def _all_served(callers: list[_Caller], more: int = 1) -> None:
    """Wait until every caller has been served some more times."""
    before = [caller.calls for caller in callers]
    await eventually(lambda: all(c.calls >= n + more for c, n in zip(callers, before, strict=True)))


@pytest.mark.on_both_loops
async def test_slots_move_under_load(servers: Servers) -> None:
    """While slots move, no caller gets a wrong reply or an error, and every call is executed once."""
    async with cluster_client(servers.url) as client:
        stopped = asyncio.Event()
        tags = [f"move{n}" for n in range(10)]
        callers = [_Caller(client, f"{{{tag}}}:{n}") for tag in tags for n in range(4)]
        running = [asyncio.create_task(caller.run(stopped)) for caller in callers]
        await eventually(lambda: min(caller.calls for caller in callers) > 10)
        for tag in tags:
            for _ in _move_of(servers, key_slot(f"{{{tag}}}")).steps():
                await _all_served(callers)
        stopped.set()
        await asyncio.gather(*running)
        assert {node.link.connection_count for node in client._nodes._by_address.values()} == {1}
        await asyncio.gather(*(client.call("DEL", f"{c._key}:n", f"{c._key}:s") for c in callers))


async def test_slots_move_at_once_under_load(servers: Servers) -> None:
    """Valkey's own atomic migration of many slots causes no error either."""
    async with cluster_client(servers.url) as client:
        stopped = asyncio.Event()
        source, target = servers.nodes[0], servers.nodes[1]
        first, last = _range_of(source)
        tags = [tag for n in range(400) if first <= key_slot(tag := f"atomic{n}") <= last][:20]
        callers = [_Caller(client, f"{{{tag}}}") for tag in tags]
        running = [asyncio.create_task(caller.run(stopped)) for caller in callers]
        await eventually(lambda: min(caller.calls for caller in callers) > 10)
        source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", node_id(target))
        await eventually(lambda: "success" in str(source.ask("CLUSTER", "GETSLOTMIGRATIONS")), within=60)
        await _all_served(callers, 10)
        stopped.set()
        await asyncio.gather(*running)
        assert owner(servers, first) is target


def _range_of(node: Valkey) -> tuple[int, int]:
    """A range of slots that a master serves."""
    reply = node.ask("CLUSTER", "SLOTS")
    assert isinstance(reply, list)
    return next(
        (first, last) for first, last, master, *_ in reply if master[1] == node.port and last > first + 500
    )


async def test_a_key_is_found_on_either_side(servers: Servers) -> None:
    """While a slot moves, a key is read and written where it is: at the source, or by ASK at the target."""
    async with cluster_client(servers.url) as client:
        await client.call("MSET", "{ask}:here", "1", "{ask}:there", "2")
        move = _move_of(servers, key_slot("{ask}"))
        move.begin()
        move.migrate("{ask}:there")
        assert await client.call("GET", "{ask}:here") == b"1"
        assert await client.call("GET", "{ask}:there") == b"2"
        assert await client.call("SET", "{ask}:new", "3") == b"OK"
        assert move.target.ask("CLUSTER", "COUNTKEYSINSLOT", move.slot) == 2
        move.migrate(*move.keys())
        move.end()
        assert await client.call("MGET", "{ask}:here", "{ask}:there", "{ask}:new") == [b"1", b"2", b"3"]


async def test_keys_on_both_sides_are_retried(servers: Servers) -> None:
    """A command whose keys are on both sides (TRYAGAIN) is retried until they are together."""
    async with cluster_client(servers.url) as client:
        await client.call("MSET", "{both}:1", "1", "{both}:2", "2")
        move = _move_of(servers, key_slot("{both}"))
        move.begin()
        move.migrate("{both}:1")
        waiting = asyncio.ensure_future(client.call("MGET", "{both}:1", "{both}:2"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        move.migrate("{both}:2")
        assert await waiting == [b"1", b"2"]
        move.end()


async def test_keys_that_stay_split_fail(servers: Servers) -> None:
    """A command whose keys stay on both sides fails as not executed, after about a timeout."""
    async with cluster_client(servers.url) as client:
        await client.call("MSET", "{split}:1", "1", "{split}:2", "2")
        move = _move_of(servers, key_slot("{split}"))
        move.begin()
        move.migrate("{split}:1")
        with pytest.raises(Unavailable, match="its slot is moving"):
            await asyncio.wait_for(client.call("MGET", "{split}:1", "{split}:2"), 60)
        move.migrate("{split}:2")
        move.end()


async def test_nodes_that_disagree_for_a_moment(servers: Servers) -> None:
    """When source and target name each other for a while, a caller waits until they agree."""
    async with cluster_client(servers.url) as client:
        await client.call("SET", "{dispute}", "1")
        move = _move_of(servers, key_slot("{dispute}"))
        move.begin()
        move.migrate("{dispute}")
        name = str(move.target.ask("CLUSTER", "MYID"))
        move.source.ask("CLUSTER", "SETSLOT", move.slot, "NODE", name)  # the wrong one first
        reading = asyncio.ensure_future(client.call("GET", "{dispute}"))
        await asyncio.sleep(0.05)
        move.target.ask("CLUSTER", "SETSLOT", move.slot, "NODE", name)
        assert await reading == b"1"


def _blocked(*nodes: Valkey) -> bool:
    return any("blocked_clients:1\r\n" in str(node.ask("INFO", "clients")) for node in nodes)


async def test_a_blocked_caller_follows_its_slot(servers: Servers) -> None:
    """A caller blocked in BLPOP while its slot moves keeps waiting at the new node, and gets its element."""
    async with cluster_client(servers.url) as client:
        waiting = asyncio.ensure_future(client.call("BLPOP", "{wait}:list", 10))
        move = _move_of(servers, key_slot("{wait}"))
        await eventually(lambda: _blocked(move.source))
        for _ in move.steps():
            pass
        await eventually(lambda: _blocked(move.target))
        await client.call("RPUSH", "{wait}:list", "element")
        assert await asyncio.wait_for(waiting, 60) == [b"{wait}:list", b"element"]


async def test_blocking_in_a_moving_slot(servers: Servers) -> None:
    """A blocking command that starts while its slot moves follows ASK."""
    async with cluster_client(servers.url) as client:
        move = _move_of(servers, key_slot("{asked}"))
        move.begin()
        await client.call("RPUSH", "{asked}:list", "element")
        assert await client.call("BLPOP", "{asked}:list", 1) == [b"{asked}:list", b"element"]
        move.end()


async def test_shard_channels_follow_their_slot(servers: Servers) -> None:
    """Subscribers of a shard channel get a mark when its slot moves, and messages of its new master."""
    async with cluster_client(servers.url) as client:
        async with (
            client.subscribe("{shard}", kind="shard") as one,
            client.subscribe("{shard}", kind="shard") as two,
        ):
            for turn in range(3):
                for _ in _move_of(servers, key_slot("{shard}")).steps():
                    pass
                for messages in (one, two):
                    message = await asyncio.wait_for(anext(messages), 60)
                    assert (message.channel, message.lost) == (b"{shard}", True)
                assert await client.call("SPUBLISH", "{shard}", turn) == 1
                assert (await anext(one)).data == (await anext(two)).data == b"%d" % turn
        assert not any(node.ask("PUBSUB", "SHARDCHANNELS") for node in servers.nodes)


async def test_joining_a_shard_channel_that_has_just_moved(servers: Servers) -> None:
    """A new subscription with an outdated slot map finds its shard channel all the same."""
    async with cluster_client(servers.url) as client:
        for _ in _move_of(servers, key_slot("{late}")).steps():
            pass
        async with client.subscribe("{late}", kind="shard") as messages:
            await client.call("SPUBLISH", "{late}", "hello")
            assert (await anext(messages)).data == b"hello"


async def test_keys_that_moved_are_invalidated(servers: Servers) -> None:
    """Listeners are notified of keys that moved, and of their changes at the new node."""
    received: list[list[bytes] | None] = []
    async with cluster_client(servers.url) as client, cluster_client(servers.url) as other:
        await client.track(received.append)
        await client.call("SET", "{copy}", "1")
        await client.call("GET", "{copy}")
        for _ in _move_of(servers, key_slot("{copy}")).steps():
            pass
        await eventually(lambda: received)
        received.clear()
        assert await client.call("GET", "{copy}") == b"1"
        await other.call("SET", "{copy}", "2")
        await eventually(lambda: [b"{copy}"] in received)
