"""OPS6: after two fail-overs of a cluster, `ephemera_reconnections_total` was still 0."""

from __future__ import annotations

import asyncio

from ephemera import embedded
from ephemera.keyspace import Catalogue, connect
from ephemera.operations.metrics import StoreMetrics
from tests.chaos.cluster_health import masters, replica_of
from tests.wire.conditions import eventually


def reconnections(metrics: StoreMetrics) -> float:
    """The sum over all servers."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in metrics.render()[0].decode().splitlines()
        if line.startswith("ephemera_reconnections_total{")
    )


async def test_ops6_a_server_that_takes_over_counts_as_a_reconnection() -> None:
    """The first connection to a promoted replica is counted; those at the start are not."""
    with embedded.cluster(node_timeout=60_000) as cluster:
        async with connect(cluster.url, Catalogue("empty")) as store:
            metrics = StoreMetrics(store)
            assert reconnections(metrics) == 0
            replica = replica_of(cluster, masters(cluster)[0])
            replica.ask("CLUSTER", "FAILOVER")
            await eventually(lambda: replica.role() == "master")
            async with asyncio.timeout(60):
                while not reconnections(metrics):
                    for number in range(50):  # some of them are redirected
                        await store.call("GET", f"key:{number}")
            assert reconnections(metrics) == 1
