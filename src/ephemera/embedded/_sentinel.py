"""A master, its replicas and three Sentinels on loopback, ready when returned.

The Sentinels start with a configuration that already lists each other and the replicas, so they need none of
the discovery rounds, which are seconds apart. A master that does not answer for `down_after` is replaced; two
of the three must agree, so one of them may be lost, too. All servers have the same generated password.
"""

from __future__ import annotations

import secrets
from functools import partial

from ephemera.embedded._ports import LOOPBACK, free_ports, start_on_free_ports
from ephemera.embedded._server import Stoppable
from ephemera.embedded._valkey import (
    Valkey,
    generate_password,
    quoted,
    replicates,
    start_all,
    stop_all,
    wait_for,
)
from ephemera.errors import EmbeddedError

NAME = "mymaster"
SENTINELS = 3
QUORUM = 2
READY_TIMEOUT = 30.0  # seconds


def sentinel(replicas: int = 1, *, down_after: int = 1000) -> Sentinel:
    """Start a master watched by three Sentinels; `down_after` is in milliseconds."""
    return start_on_free_ports(lambda: Sentinel(replicas, down_after))


class Sentinel(Stoppable):
    """A running master with replicas and Sentinels; leaving its `with` block stops them all."""

    def __init__(self, replicas: int, down_after: int) -> None:
        """Start the master first, so that no Sentinel ever misses it, then the rest at the same time."""
        ports = free_ports(1 + replicas + SENTINELS)
        data_ports, sentinel_ports = ports[:-SENTINELS], ports[-SENTINELS:]
        ids = {port: secrets.token_hex(20) for port in sentinel_ports}
        self._password = generate_password()
        master = Valkey(data_ports[0], [], password=self._password)
        try:
            others = start_all(
                [
                    *(partial(start_replica, port, data_ports[0], self._password) for port in data_ports[1:]),
                    *(
                        partial(start_sentinel, port, ids, data_ports, down_after, self._password)
                        for port in sentinel_ports
                    ),
                ]
            )
        except BaseException:
            master.stop()
            raise
        self.nodes = [master, *others[:-SENTINELS]]
        self.sentinels = others[-SENTINELS:]
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def __repr__(self) -> str:
        return f"<Sentinel on ports {', '.join(str(node.port) for node in self.sentinels)}>"

    @property
    def url(self) -> str:
        """The URL for clients, with the password, the Sentinels' addresses and the master's name."""
        hosts = ",".join(f"{LOOPBACK}:{node.port}" for node in self.sentinels)
        return f"redis+sentinel://:{self._password}@{hosts}/{NAME}?sentinel_password={self._password}"

    @property
    def master(self) -> Valkey:
        """The server that the Sentinels name as the master at present, even if it has just died."""
        for view in self.sentinels:
            try:
                address = view.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
            except OSError:
                continue
            assert isinstance(address, list)
            return next(node for node in self.nodes if node.port == int(address[1]))
        raise EmbeddedError("none of the Sentinels answers: restart() one to find the master")

    @property
    def replicas(self) -> list[Valkey]:
        """The servers that are not the master at present."""
        master = self.master
        return [node for node in self.nodes if node is not master]

    def stop(self) -> None:
        """Stop every server and remove the temporary folders; calling it again does nothing."""
        stop_all([*self.sentinels, *self.nodes])

    def _wait(self) -> None:
        if not wait_for(self._is_ready, READY_TIMEOUT):
            view = self.sentinels[0].ask("SENTINEL", "MASTERS")
            raise EmbeddedError(f"the Sentinels do not see all servers after {READY_TIMEOUT} s: {view}")

    def _is_ready(self) -> bool:
        master, *replicas = self.nodes
        linked = all(replicates(replica, master.port) for replica in replicas)
        return linked and all(sees(view, len(replicas)) for view in self.sentinels)


def start_replica(port: int, master: int, password: str) -> Valkey:
    """Start a replica of the master on the other port."""
    return Valkey(port, [f"replicaof {LOOPBACK} {master}"], password=password)


def start_sentinel(
    port: int, ids: dict[int, str], data_ports: list[int], down_after: int, password: str
) -> Valkey:
    """Start one Sentinel that knows the others, the master (first of `data_ports`) and the replicas."""
    settings = [
        f"sentinel myid {ids[port]}",
        f"sentinel sentinel-pass {quoted(password)}",
        f"sentinel monitor {NAME} {LOOPBACK} {data_ports[0]} {QUORUM}",
        f"sentinel auth-pass {NAME} {quoted(password)}",
        f"sentinel down-after-milliseconds {NAME} {down_after}",
        f"sentinel failover-timeout {NAME} {3 * down_after}",
        *(f"sentinel known-replica {NAME} {LOOPBACK} {replica}" for replica in data_ports[1:]),
        *(
            f"sentinel known-sentinel {NAME} {LOOPBACK} {other} {sentinel_id}"
            for other, sentinel_id in ids.items()
            if other != port
        ),
    ]
    return Valkey(port, settings, password=password, sentinel=True)


def sees(view: Valkey, replicas: int) -> bool:
    """Whether a Sentinel is connected to the master, the replicas and the other Sentinels."""
    flags = [
        dict(zip(entry[::2], entry[1::2], strict=True))["flags"]
        for kind in ("MASTERS", "REPLICAS", "SENTINELS")
        for entry in entries(view, kind)
    ]
    return flags == ["master"] + ["slave"] * replicas + ["sentinel"] * (SENTINELS - 1)


def entries(view: Valkey, kind: str) -> list[list[str]]:
    """Return what a Sentinel knows of this kind, each as a flat list of names and values."""
    reply = view.ask("SENTINEL", kind, *([] if kind == "MASTERS" else [NAME]))
    assert isinstance(reply, list)
    return reply
