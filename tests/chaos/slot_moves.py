"""Moving slots of a live cluster from one master to another, as `valkey-cli --cluster reshard` does."""

from __future__ import annotations

from collections.abc import Iterator

from ephemera.embedded import Cluster, Valkey


def owner(cluster: Cluster, slot: int) -> Valkey:
    """The master that serves a slot, by its own slot map."""
    for node in cluster.nodes:
        reply = node.ask("CLUSTER", "SLOTS")
        assert isinstance(reply, list)
        for first, last, master, *_ in reply:
            if first <= slot <= last and master[1] == node.port:
                return node
    raise AssertionError(f"no node serves slot {slot}")


def node_id(node: Valkey) -> str:
    """The node's id in the cluster."""
    return str(node.ask("CLUSTER", "MYID"))


class Move:
    """One slot that moves; between its steps the cluster answers ASK, TRYAGAIN and MOVED."""

    def __init__(self, slot: int, source: Valkey, target: Valkey) -> None:
        self.slot = slot
        self.source = source
        self.target = target

    def begin(self) -> None:
        """From here on the source answers ASK for keys that it does not have."""
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", node_id(self.source))
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", node_id(self.target))

    def keys(self) -> list[str]:
        """The keys that are still at the source."""
        reply = self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 1000)
        assert isinstance(reply, list)
        return [str(key) for key in reply]

    def migrate(self, *keys: str) -> None:
        """Move some keys."""
        if keys:
            where = ("127.0.0.1", self.target.port, "", 0, 5000)
            self.source.ask("MIGRATE", *where, "AUTH", self.target.password or "", "KEYS", *keys)

    def end(self) -> None:
        """From here on the source answers MOVED."""
        name = node_id(self.target)
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "NODE", name)
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "NODE", name)

    def steps(self) -> Iterator[None]:
        """Do the whole migration, yielding after each step."""
        self.begin()
        yield
        while keys := self.keys():
            self.migrate(*keys[:3])
            yield
        self.end()
        yield
