"""An embedded cluster is complete when returned, and fails over as a real one does."""

from __future__ import annotations

import socket

import pytest

from ephemera.embedded import Valkey, cluster
from ephemera.embedded import _ports as ports
from ephemera.embedded._cluster import ClusterPlan
from tests.embedded.owners import alive, eventually, family


def info(node: Valkey) -> dict[str, str]:
    """Return CLUSTER INFO by name."""
    return dict(line.split(":") for line in str(node.ask("CLUSTER", "INFO")).split())


def test_it_is_complete_when_returned_and_gone_when_stopped() -> None:
    """Every node is healthy and covers all slots, every replica is in sync, and stop() ends them all."""
    with cluster() as running:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in running.nodes)
        assert running.url == f"redis+cluster://:{running.nodes[0].password}@{hosts}"
        assert [node.role() for node in running.nodes] == ["master"] * 3 + ["replica"] * 3
        for node in running.nodes:
            state = info(node)
            assert (state["cluster_state"], state["cluster_slots_ok"]) == ("ok", "16384")
            assert (state["cluster_known_nodes"], state["cluster_size"]) == ("6", "3")
            assert node.ask("CONFIG", "GET", "cluster-node-timeout") == ["cluster-node-timeout", "2000"]
        for replica in running.nodes[3:]:
            assert "master_link_status:up" in str(replica.ask("INFO", "replication"))
        processes = [pid for node in running.nodes for pid in family(node.supervisor_pid)]
        folders = [node.log.parent for node in running.nodes]
    running.stop()
    assert not any(map(alive, processes))
    assert not any(folder.exists() for folder in folders)


def test_writes_reach_every_replica() -> None:
    """A master's write is acknowledged by each of its replicas."""
    with cluster(masters=1, replicas=2) as running:
        master = running.nodes[0]
        assert master.ask("SET", "key", "value") == "OK"
        assert eventually(lambda: [node.ask("DBSIZE") for node in running.nodes] == [1, 1, 1])


def test_a_dead_master_is_replaced_and_returns_as_a_replica() -> None:
    """After the node timeout a replica is promoted; the old master, restarted, replicates it."""
    with cluster(node_timeout=1000) as running:
        old, new = running.nodes[0], running.nodes[3]
        old.kill()
        assert eventually(lambda: new.role() == "master")
        assert eventually(lambda: all(info(node)["cluster_state"] == "ok" for node in running.nodes[1:]))
        old.restart()
        assert eventually(lambda: old.role() == "replica")


def test_masters_alone_form_a_cluster_and_lost_ports_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without replicas all slots are covered, even when another process took a planned port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        choices = [[*ports.free_ports(3), other.getsockname()[1]], ports.free_ports(4)]
        monkeypatch.setattr("ephemera.embedded._cluster.free_ports", lambda _: choices.pop(0))
        with cluster(masters=2, replicas=0) as running:
            assert [info(node)["cluster_slots_ok"] for node in running.nodes] == ["16384", "16384"]
    assert not choices


def test_the_plan_covers_every_slot_once() -> None:
    """Whatever the number of masters, their slots are 0 to 16383 without gap or overlap."""
    for masters in (1, 2, 3, 5, 7):
        plan = ClusterPlan(masters, 1)
        ranges = [plan.slots(node) for node in plan.nodes[:masters]]
        assert [slot for first, last in ranges for slot in range(first, last + 1)] == list(range(16384))
