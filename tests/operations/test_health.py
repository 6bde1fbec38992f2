"""Health checks: every rule with its figure, on servers that satisfy and violate it."""

from __future__ import annotations

import asyncio

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Valkey, free_ports
from ephemera.keyspace import SERVER_IDENTITY, Catalogue, connect, fixed, permanent
from ephemera.operations.health import Capacity, Check, Health, check_client, check_server, estimate_capacity
from ephemera.wire import open_client

news = Catalogue("news")
PAGE = news.value("news:page:{id}", str, lifetime=fixed(hours=1), purpose="x")
QUEUE = news.list("news:jobs", str, lifetime=permanent(reason="workers"), role="queue", purpose="x")


def named(health: Health, name: str) -> Check:
    """The check of this name on the only server."""
    [server] = health.servers
    [check] = [check for check in server.checks if check.name == name]
    return check


async def test_a_healthy_server(key: str) -> None:
    """Every rule has its figure, there is no advice, and the status is ok."""
    with embedded.valkey(config={"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"}) as server:
        health = await check_server(server.url, [news], role="cache")
    [seen] = health.servers
    assert health.status == "ok", health.advice
    assert health.advice == []
    assert {check.name for check in seen.checks} == {
        "clients", "clock", "evictions", "fragmentation", "hit ratio", "identity", "latency", "memory",
        "reachable", "replication", "roles", "slow log",
    }  # fmt: skip
    assert all(check.figure and check.rule for check in seen.checks)
    assert seen.version.startswith(("valkey ", "redis "))


async def test_an_unreachable_server_is_a_problem_and_not_an_error() -> None:
    """A health check of an unreachable server returns a problem instead of raising."""
    [port] = free_ports(1)
    health = await check_server(f"redis://127.0.0.1:{port}", [news])
    assert health.status == "problem"
    assert named(health, "reachable").status == "problem"


async def test_a_hung_server_is_a_problem() -> None:
    """A frozen server does not block the health check."""
    with embedded.valkey() as server:
        async with open_client(server.url) as client:
            server.pause()
            try:
                health = await check_client(client)
            finally:
                server.resume()
    assert health.status == "problem"
    assert "reachable" in {check.name for check in health.advice}


async def test_a_cache_that_misses_and_evicts_is_advised_to_grow() -> None:
    """A low hit ratio and evictions are warnings with the measured figure."""
    with embedded.valkey(config={"maxmemory": "3mb", "maxmemory-policy": "allkeys-lru"}) as server:
        for number in range(60):
            server.ask("SET", f"news:page:{number}", "x" * 50_000, "EX", "60")
        for number in range(1200):
            server.ask("GET", f"news:page:none{number}")
        health = await check_server(server.url, [news], role="cache")
    assert health.status == "warning"
    ratio, evictions = named(health, "hit ratio"), named(health, "evictions")
    assert ratio.figure.startswith("0.0% of 1,2")
    assert ratio.rule == "hit ratio >= 85%"
    assert evictions.status == "warning"
    assert "raise maxmemory above 3.0 MiB" in evictions.advice


async def test_a_role_on_the_wrong_server_is_a_problem() -> None:
    """Policy and persistence are checked as in the audit, without a scan."""
    with embedded.valkey(config={"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"}) as server:
        health = await check_server(server.url, [news], role="queue")
    assert health.status == "problem"
    assert any("may evict news:jobs" in check.figure for check in health.advice)


@pytest.mark.standalone("a cluster has one database, and it uses another")
async def test_identity_is_checked_when_asked_for(server: Valkey) -> None:
    """Another mark, or none, is a problem with advice on how to mark."""
    health = await check_server(f"{server.url}/7", identity="slides-cache")
    mark = named(health, "identity")
    assert (mark.status, mark.figure) == ("problem", "no mark")
    assert mark.advice.endswith("--name slides-cache")
    async with open_client(f"{server.url}/7") as client:
        await client.call("SET", SERVER_IDENTITY.key(), "slides-cache")
        assert named(await check_client(client, identity="slides-cache"), "identity").status == "ok"
        await client.call("DEL", SERVER_IDENTITY.key())


async def test_slow_commands_and_refused_clients_are_warnings() -> None:
    """Slow log entries and refused clients are warnings."""
    with embedded.valkey(config={"slowlog-log-slower-than": "0"}) as server:
        server.ask("PING")
        health = await check_server(server.url)
        assert named(health, "slow log").status == "warning"
        server.ask("CONFIG", "SET", "maxclients", "1")
        async with open_client(server.url) as client:
            with pytest.raises(Exception, match=r"max number of clients|closed"):
                server.ask("PING")
            await client.call("CONFIG", "SET", "maxclients", 100)
            assert named(await check_client(client), "clients").status == "warning"


async def test_each_master_of_a_cluster_is_checked(cluster: Cluster) -> None:
    """Every master is checked separately, with its replica."""
    health = await check_server(cluster.url, [news])
    assert len(health.servers) == 3
    for server in health.servers:
        [replication] = [check for check in server.checks if check.name == "replication"]
        assert replication.figure.startswith("1 replica")


async def test_a_replica_without_its_master_is_a_problem() -> None:
    """A broken replication link is a problem with advice."""
    [port] = free_ports(1)
    with embedded.valkey(config={"replicaof": f"127.0.0.1 {port}"}) as replica:
        health = await check_server(replica.url)
    assert named(health, "replication").status == "problem"


async def test_capacity_has_sizes_and_the_time_until_full() -> None:
    """Bytes per key are measured, and observed growth gives the days until full."""
    with embedded.valkey(config={"maxmemory": "64mb", "maxmemory-policy": "noeviction"}) as server:
        async with connect(server.url, news) as store:
            await store[PAGE].put_many([({"id": number}, "x" * 1000) for number in range(500)])

            async def grow() -> None:
                for number in range(500, 1500):
                    await store[PAGE].put("x" * 1000, id=number)
                    await asyncio.sleep(0.0002)

            growing = asyncio.create_task(grow())
            found = await estimate_capacity(server.url, [news], observe=0.5, budget=10)
            await growing
            resting = await estimate_capacity(server.url, [news], observe=0.1, budget=10)
    [page] = [space for space in found.keyspaces if space.pattern == PAGE.pattern]
    assert page.keys >= 500
    assert 1000 < page.bytes_per_key < 1500
    assert found.growth > 0
    assert found.days_until_full is not None
    assert 0 < found.days_until_full < 1
    assert resting.days_until_full is None
    assert resting.keyspaces[0].pattern == PAGE.pattern


async def test_a_queue_is_not_judged_by_its_misses() -> None:
    """For role queue the hit ratio is shown without a warning, because misses are normal."""
    with embedded.valkey(config={"appendonly": "yes"}) as server:
        for number in range(1200):
            server.ask("GET", f"revoked:{number}")
        queue = named(await check_server(server.url, [news], role="queue"), "hit ratio")
        both = named(await check_server(server.url, [news]), "hit ratio")
    assert (queue.status, both.status) == ("ok", "warning")
    assert queue.figure.startswith("0.0% of 1,2")
    assert queue.figure.endswith(", not judged for role queue")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(86_400 * 2, "2.0 days"), (86_400, "1.0 day"), (8640, "2.4 hours"), (3600, "1.0 hour")],
)
def test_less_than_a_day_until_full_is_shown_in_hours(seconds: int, text: str) -> None:
    """The time until full is in hours when it is less than a day."""
    found = Capacity(
        used=0, limit=seconds, evicts=False, keyspaces=[], unknown_keys=0, observed=1.0, growth=1.0
    )  # fmt: skip
    assert found.time_until_full == text
