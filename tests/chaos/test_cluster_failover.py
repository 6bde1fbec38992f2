"""Masters that die, freeze or step down: callers get correct outcomes, then the new master."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster as Servers
from ephemera.errors import OutcomeUnknown, Unavailable
from ephemera.wire import ClusterClient, Invalidations, key_slot
from tests.chaos.cluster_health import heal, masters, replica_of
from tests.chaos.slot_moves import owner
from tests.wire.clients import cluster_client
from tests.wire.conditions import answered, eventually

_NODE_TIMEOUT = 1.0  # seconds
# A master that has just started refuses to vote, and an election that failed is repeated only after 4 s.
_OLD_ENOUGH_TO_VOTE = 2.5


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Servers, float]]:
    """Three masters with a replica each, and when they were started."""
    with embedded.cluster(node_timeout=int(_NODE_TIMEOUT * 1000)) as running:
        yield running, time.monotonic()


@pytest.fixture
def servers(started: tuple[Servers, float]) -> Servers:
    """The cluster, healed after the previous test."""
    heal(started[0])
    return started[0]


@pytest.fixture
async def voting(servers: Servers, started: tuple[Servers, float]) -> Servers:
    """The cluster, once its masters are old enough to elect another."""
    await asyncio.sleep(max(0, started[1] + _OLD_ENOUGH_TO_VOTE - time.monotonic()))
    return servers


class _Load:
    """Callers in all slots, each with a counter of its own."""

    def __init__(self, client: ClusterClient) -> None:
        self.outcomes: list[Counter[type]] = [Counter() for _ in range(30)]
        self._client = client
        self._stopped = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run(n)) for n in range(30)]

    @classmethod
    async def started(cls, client: ClusterClient) -> _Load:
        await asyncio.gather(*(client.call("DEL", f"load:{n}") for n in range(30)))
        await asyncio.gather(*(client.call("SET", f"load:own:{n}", n) for n in range(30)))
        load = cls(client)
        await eventually(lambda: min(outcomes[int] for outcomes in load.outcomes) > 20)
        return load

    async def served_again(self, within: float = 60) -> None:
        """Wait until every caller is served."""
        before = [outcomes[int] for outcomes in self.outcomes]

        def all_served() -> bool:
            return all(now[int] > then + 3 for now, then in zip(self.outcomes, before, strict=True))

        await eventually(all_served, within)

    async def stop(self) -> Counter[type]:
        """The outcomes of all callers, after checking that every counter agrees with them."""
        self._stopped.set()
        await asyncio.gather(*self._tasks)
        for n, outcomes in enumerate(self.outcomes):
            count = int(await self._client.call("GET", f"load:{n}"))
            assert count <= outcomes[int] + outcomes[OutcomeUnknown]
        return sum(self.outcomes, Counter())

    async def _run(self, n: int) -> None:
        while not self._stopped.is_set():
            try:
                await self._client.call("INCR", f"load:{n}")
                self.outcomes[n][int] += 1
                assert await self._client.call("GET", f"load:own:{n}") == b"%d" % n
            except (Unavailable, OutcomeUnknown) as error:
                self.outcomes[n][type(error)] += 1
                await asyncio.sleep(0.002)


@pytest.mark.patient
async def test_a_manual_failover_causes_no_error(servers: Servers) -> None:
    """A manual fail-over causes no error, though the master changes under load."""
    async with cluster_client(servers.url) as client:
        load = await _Load.started(client)
        replica = replica_of(servers, masters(servers)[0])
        replica.ask("CLUSTER", "FAILOVER")
        await eventually(lambda: replica.role() == "master")
        await load.served_again()
        assert set(await load.stop()) == {int}


async def test_local_copies_are_invalidated_when_a_master_steps_down(servers: Servers) -> None:
    """Listeners are notified that any key may have changed when a master is replaced."""
    async with cluster_client(servers.url) as client:
        received: list[Invalidations] = []
        await client.track(received.append)
        await client.call("SET", "copied", "1")
        await client.call("GET", "copied")
        received.clear()
        replica = replica_of(servers, owner(servers, key_slot("copied")))
        replica.ask("CLUSTER", "FAILOVER")
        async with asyncio.timeout(60):
            while None not in received:
                assert await client.call("GET", "copied") == b"1"
        await client.call("GET", "copied")
        replica.ask("SET", "copied", "2")
        await eventually(lambda: [b"copied"] in received)


async def test_the_master_serves_reads_of_a_dead_replica(servers: Servers) -> None:
    """Reads from a replica that dies are served by its master from then on."""
    async with cluster_client(f"{servers.url}?read_from=replicas") as client:
        await client.call("SET", "standin", "value")
        replica = replica_of(servers, owner(servers, key_slot("standin")))
        await eventually(lambda: replica.ask("CLUSTER", "COUNTKEYSINSLOT", key_slot("standin")) == 1)
        assert await client.call("GET", "standin") == b"value"
        replica.kill()
        await answered(lambda: client.call("GET", "standin"))  # the replica never restarts
        assert not client._nodes.node_for(("GET", "standin")).endpoint.replica


@pytest.mark.parametrize("hurt", ["kill", "pause"])
async def test_a_master_dies_under_load(voting: Servers, hurt: str) -> None:
    """A master killed or frozen: correct outcomes only, and service soon after the node timeout."""
    victim = masters(voting)[0]
    async with cluster_client(voting.url) as client:
        load = await _Load.started(client)
        getattr(victim, hurt)()
        begun = time.monotonic()
        await eventually(lambda: not client.up)
        await eventually(lambda: client.up, within=_NODE_TIMEOUT + 10)
        await load.served_again(within=5)
        assert time.monotonic() - begun < _NODE_TIMEOUT + 10
        outcomes = await load.stop()
        assert set(outcomes) <= {int, Unavailable, OutcomeUnknown}
        assert outcomes[Unavailable] > 0


async def test_shard_channels_survive_their_master(voting: Servers) -> None:
    """A shard channel whose master dies is subscribed to at the next one, and the gap is reported."""
    async with cluster_client(voting.url) as client, client.subscribe("{shard}", kind="shard") as messages:
        assert await client.call("SPUBLISH", "{shard}", "before") == 1
        assert (await anext(messages)).data == b"before"
        owner(voting, key_slot("{shard}")).kill()
        message = await asyncio.wait_for(anext(messages), _NODE_TIMEOUT + 3)
        assert (message.channel, message.lost) == (b"{shard}", True)
        await answered(lambda: client.call("SPUBLISH", "{shard}", "after"))
        while (message := await asyncio.wait_for(anext(messages), 60)).lost:
            pass
        assert message.data == b"after"


async def test_channels_move_to_another_node(servers: Servers) -> None:
    """When the node of a subscription dies, it moves to another node, and the gap is reported."""
    async with cluster_client(servers.url) as client, client.subscribe("news") as messages:
        hub = next(n for n in servers.nodes if "sub=1 " in str(n.ask("CLIENT", "LIST", "TYPE", "pubsub")))
        hub.kill()
        message = await asyncio.wait_for(anext(messages), 3)
        assert (message.channel, message.lost) == (b"news", True)
        next(node for node in servers.nodes if node is not hub).ask("PUBLISH", "news", "again")
        assert (await asyncio.wait_for(anext(messages), 60)).data == b"again"
