"""Restoring a cluster after a test broke it."""

from __future__ import annotations

from ephemera.embedded import Cluster, Valkey
from tests.embedded.owners import eventually


def heal(cluster: Cluster) -> None:
    """Bring every node back, and wait until all agree on the masters and their replicas."""
    for node in cluster.nodes:
        node.resume()
        if not _answers(node):
            node.restart()
    assert eventually(lambda: all(_is_healthy(node) for node in cluster.nodes))


def masters(cluster: Cluster) -> list[Valkey]:
    """The masters at present."""
    return [node for node in cluster.nodes if _answers(node) and node.role() == "master"]


def replica_of(cluster: Cluster, master: Valkey) -> Valkey:
    """The replica of a master."""
    for node in cluster.nodes:
        role = node.ask("ROLE")
        if isinstance(role, list) and role[:3] == ["slave", "127.0.0.1", master.port]:
            return node
    raise AssertionError(f"{master} has no replica")


def _answers(node: Valkey) -> bool:
    try:
        return node.ask("PING") == "PONG"
    except OSError:
        return False


def _is_healthy(node: Valkey) -> bool:
    slots = node.ask("CLUSTER", "SLOTS")
    assert isinstance(slots, list)
    led = {master[1] for _, _, master, *_ in slots}
    whole = all(len(shard) == 4 for shard in slots)
    return whole and len(led) == 3 and _is_in_sync(node) and "state:ok" in str(node.ask("CLUSTER", "INFO"))


def _is_in_sync(node: Valkey) -> bool:
    """A replica that has just restarted must copy its master's data before it is in sync."""
    role = node.ask("ROLE")
    assert isinstance(role, list)
    return "master" in role or "connected" in role
