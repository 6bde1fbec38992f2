"""The audit of a cluster: all masters concurrently, or their replicas."""

from __future__ import annotations

import asyncio

import pytest

from ephemera.embedded import Cluster
from ephemera.wire import open_client
from tests.operations.audit_fixtures import KEYS, audited, of_kind, state_of, stock

MANY = 5000


@pytest.fixture
async def spread(own_cluster: Cluster) -> str:
    """A cluster with keys on all masters, already replicated."""
    await stock(own_cluster.url)
    async with open_client(own_cluster.url) as client:
        await asyncio.gather(*(client.call("SET", f"seen:user-{n}", 1, "EX", 3600) for n in range(MANY)))
    for node in own_cluster.nodes[:3]:
        node.ask("WAIT", 1, 5000)
    return own_cluster.url


async def test_all_masters_are_audited(own_cluster: Cluster, spread: str) -> None:
    """Every key of every master is counted, and samples come from all of them."""
    report = await audited(spread, sample=200)
    assert report.coverage.complete
    assert report.coverage.names == MANY + KEYS
    assert state_of(report, "seen:{user_id}").keys == MANY + 1
    assert {server.name for server in report.servers} == {
        f"127.0.0.1:{node.port}" for node in own_cluster.nodes[:3]
    }
    assert of_kind(report, "undecodable") == of_kind(report, "no-ttl") == of_kind(report, "unknown") == []
    assert state_of(report, "seen:{user_id}").sampled == 200


async def test_replicas_are_audited_when_the_url_says_so(own_cluster: Cluster, spread: str) -> None:
    """With read_from=replicas the same keys are read from the replicas."""
    async with open_client(spread) as client:
        for node in client.nodes():
            await node.call("CONFIG", "RESETSTAT")
        report = await audited(f"{spread}?read_from=replicas")
        stats = [await node.call("INFO", "commandstats") for node in client.nodes()]
    assert all(server.replica for server in report.servers)
    assert {server.name for server in report.servers} == {
        f"127.0.0.1:{node.port}" for node in own_cluster.nodes[3:]
    }
    assert state_of(report, "seen:{user_id}").keys == MANY + 1
    assert state_of(report, "seen:{user_id}").sampled == 100
    assert not any("cmdstat_scan" in str(each) or "cmdstat_type" in str(each) for each in stats)


async def test_a_cursor_has_an_entry_for_each_node(spread: str) -> None:
    """An interrupted audit of a cluster resumes on every node."""
    first = await audited(spread, sample=0, budget=1e-9)
    assert first.coverage.cursor is not None
    assert first.coverage.cursor.count("@") == 3
    rest = await audited(spread, sample=0, cursor=first.coverage.cursor)
    assert rest.coverage.cursor is None
    counts = [state_of(report, "seen:{user_id}").keys for report in (first, rest)]
    assert sum(counts) >= MANY + 1
    assert all(counts)
