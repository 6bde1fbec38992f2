"""Embedded Sentinels see all servers when returned, and replace a dead master."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ephemera.embedded import Sentinel, sentinel
from tests.embedded.owners import alive, eventually, family

LEADER = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")


@pytest.fixture(scope="module")
def running() -> Iterator[Sentinel]:
    """A master, two replicas and three Sentinels; the last test stops them."""
    with sentinel(replicas=2, down_after=500) as servers:
        yield servers


def test_they_see_all_servers_when_returned(running: Sentinel) -> None:
    """The Sentinels know each other, the master and every replica at once."""
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in running.sentinels)
    password = running.sentinels[0].password
    assert running.url == f"redis+sentinel://:{password}@{hosts}/mymaster?sentinel_password={password}"
    assert running.master.role() == "master"
    assert [node.role() for node in running.replicas] == ["replica"] * 2
    assert [node.role() for node in running.sentinels] == ["sentinel"] * 3
    for node in running.sentinels:
        assert str(node.ask("SENTINEL", "CKQUORUM", "mymaster")).startswith("OK 3 usable")
        listed = node.ask("SENTINEL", "REPLICAS", "mymaster")
        assert isinstance(listed, list)
        assert sorted(int(entry[5]) for entry in listed) == sorted(r.port for r in running.replicas)


def test_a_dead_master_is_replaced_even_if_a_sentinel_hangs(running: Sentinel) -> None:
    """Two Sentinels agree on a replica; the third learns of it when it is resumed."""
    first = running.master
    running.sentinels[0].pause()
    first.kill()
    assert eventually(lambda: running.sentinels[1].ask(*LEADER) != ["127.0.0.1", str(first.port)])
    running.sentinels[0].resume()
    assert eventually(lambda: running.master is not first)
    assert eventually(lambda: running.master.role() == "master")
    assert first in running.replicas


def test_stop_leaves_nothing(running: Sentinel) -> None:
    """stop() ends every server and removes every folder, and may be repeated."""
    servers = [*running.sentinels, *running.nodes]
    processes = [pid for node in servers for pid in family(node.supervisor_pid)]
    running.stop()
    running.stop()
    assert not any(map(alive, processes))
    assert not any(node.log.parent.exists() for node in servers)


def test_without_a_password_every_client_may_connect() -> None:
    """The Sentinels and the master ask for none, and the URL has none."""
    with sentinel(replicas=1, password="") as servers:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in servers.sentinels)
        assert servers.url == f"redis+sentinel://{hosts}/mymaster"
        for node in (*servers.sentinels, *servers.nodes):
            assert (node.password, node.ask("PING")) == ("", "PONG")
