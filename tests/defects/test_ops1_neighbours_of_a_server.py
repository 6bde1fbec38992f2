"""OPS1: the nightly audit of the shipped layout could not pass.

Identity and slides declared the same keys, so an audit with both catalogues was refused, and with one of them
the other's keys were unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from ephemera import embedded
from ephemera.cli import load_catalogue
from ephemera.embedded import Valkey
from ephemera.keyspace import Keyspace, shared_key
from ephemera.operations.audit import audit
from ephemera.operations.configuration import server_settings
from tests.cli.commands import ephemera

CACHE = ("identity", "slides", "feed")
"""The services that share the cache cluster in deploy/."""
EVERY = (*CACHE, "scripture", "league")
"""The services that share the queue."""


def keyspaces(service: str) -> list[Keyspace[object]]:
    """What a service declares, without channels, which no audit sees."""
    return [space for space in load_catalogue(service) if space.kind != "channel"]


@pytest.mark.parametrize(("one", "other"), [*combinations(EVERY, 2)])
def test_ops1_services_on_one_server_declare_different_keys(one: str, other: str) -> None:
    """No key could be rendered by the patterns of two services."""
    shared = [
        (left.pattern, right.pattern)
        for left in keyspaces(one)
        for right in keyspaces(other)
        if shared_key(left.template, right.template)
    ]
    assert shared == []


@pytest.fixture(scope="module")
def cache() -> Iterator[Valkey]:
    """A server as the shipped configuration of role cache, with keys of two services as they write them."""
    chosen = ("maxmemory", "maxmemory-policy", "appendonly")
    settings = {each.name: each.value for each in server_settings("cache") if each.name in chosen}
    with embedded.valkey(config=settings) as server:
        for key in ("cache:profile:{7}", "plan_limits:7"):
            server.ask("SET", key, "x", "EX", 60)
        yield server


@pytest.mark.parametrize("service", ["identity", "slides"])
def test_ops1_the_nightly_audit_of_each_service_knows_its_neighbours(cache: Valkey, service: str) -> None:
    """With its neighbours named, an audit of one service finds no unknown key, and judges only its own."""
    others = [word for name in CACHE if name != service for word in ("--neighbour", name)]
    words = ("audit", "--url", cache.url, "--catalogue", service, "--role", "cache")
    assert ephemera(*words, "--fail-on", "unknown").code == 1
    outcome = ephemera(*words, *others, "--fail-on", "unknown,misplaced,evictable-queue")
    assert outcome.code == 0, outcome.out


async def test_ops1_all_catalogues_of_the_cluster_can_be_audited_together(cache: Valkey) -> None:
    """One audit with every catalogue of the server is not refused, and knows all keys."""
    report = await audit(cache.url, [load_catalogue(name) for name in CACHE], role="cache")
    assert report.unknown.keys == 0
    assert [each.kind for each in report.findings if each.kind == "misplaced"] == []


async def test_ops1_a_neighbours_queue_still_counts_for_the_server(cache: Valkey) -> None:
    """A neighbour's keys are not judged, but what the server would do to them is."""
    cache.ask("XADD", "gl:events:users", "*", "x", "1")
    report = await audit(cache.url, [load_catalogue("identity")], neighbours=[load_catalogue("scripture")])
    assert "evictable-queue" in {each.kind for each in report.findings}
    cache.ask("DEL", "gl:events:users")
