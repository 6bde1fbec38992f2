"""A server's settings compared with its roles."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ephemera import embedded
from ephemera.keyspace import Catalogue, fixed, permanent, write_identity
from ephemera.operations.audit import AuditReport, audit
from ephemera.wire import as_text, open_client
from tests.operations.audit_fixtures import of_kind

catalogue = Catalogue("roles")
CACHE = catalogue.counter("cache:{id}", lifetime=fixed(hours=1), purpose="x")
KEPT = catalogue.counter("kept:{id}", lifetime=permanent(reason="x"), purpose="x")
QUEUE = catalogue.counter("queue:{id}", lifetime=permanent(reason="x"), role="queue", purpose="x")
ENDING = catalogue.counter(
    "ending:{id}", lifetime=fixed(days=1, outlives="the flush"), role="queue", purpose="x"
)
_SERVER = {
    "evictable-queue",
    "unevictable-cache",
    "no-memory-limit",
    "memory-full",
    "unpersisted-queue",
    "persisted-cache",
    "persistence-failing",
}


@contextmanager
def served(**config: str) -> Iterator[str]:
    """The URL of a server with these settings."""
    with embedded.valkey(config={name.replace("_", "-"): value for name, value in config.items()}) as server:
        yield server.url


async def with_keys(url: str, *keys: str) -> AuditReport:
    """The report on a server with these keys."""
    async with open_client(url) as client:
        for key in keys:
            await client.call("SET", key, 1)
    return await audit(url, [catalogue])


def about_server(report: AuditReport) -> set[str]:
    """The kinds of findings about the server itself."""
    return {finding.kind for finding in report.findings} & _SERVER


@pytest.mark.parametrize(
    ("config", "keys", "found"),
    [
        ({"maxmemory": "100mb", "maxmemory_policy": "allkeys-lru"}, ["cache:1"], set()),
        ({"maxmemory": "100mb", "maxmemory_policy": "allkeys-lru"}, ["queue:1"], {"evictable-queue"}),
        ({"maxmemory": "100mb", "maxmemory_policy": "volatile-ttl"}, ["queue:1"], set()),
        ({"maxmemory": "100mb", "maxmemory_policy": "volatile-ttl"}, ["ending:1"], {"evictable-queue"}),
        ({"maxmemory": "100mb", "maxmemory_policy": "volatile-ttl"}, ["kept:1"], {"unevictable-cache"}),
        ({"maxmemory": "100mb"}, ["cache:1"], {"unevictable-cache"}),
        ({"maxmemory": "100mb"}, ["queue:1"], set()),
        ({}, ["cache:1"], {"no-memory-limit"}),
    ],
)
async def test_eviction_must_suit_the_roles(config: dict[str, str], keys: list[str], found: set[str]) -> None:
    """Queues must not be evicted, caches must be; volatile policies evict only keys with a TTL."""
    with served(**config) as url:
        assert about_server(await with_keys(url, *keys)) - {"unpersisted-queue"} == found


async def test_persistence_must_suit_the_roles() -> None:
    """Queues need an append-only file, a server with only caches does not."""
    with served(maxmemory="100mb") as url:
        assert "unpersisted-queue" in about_server(await with_keys(url, "queue:1"))
    with served(maxmemory="100mb", maxmemory_policy="allkeys-lru", appendonly="yes") as url:
        assert about_server(await with_keys(url, "cache:1")) == {"persisted-cache"}
    with served(maxmemory="100mb", appendonly="yes") as url:
        assert about_server(await with_keys(url, "queue:1")) == set()


async def test_a_full_server_that_does_not_evict_is_found() -> None:
    """Above 90 % of its memory, a server with noeviction is about to refuse writes."""
    with served() as url:
        async with open_client(url) as client:
            await client.call("SET", "cache:large", b"1" * 20_000_000)
            await client.call("CONFIG", "SET", "maxmemory", 21_000_000)
            report = await audit(url, [catalogue])
    assert "memory-full" in about_server(report)


async def test_a_failed_snapshot_is_found() -> None:
    """A server whose last save failed is found."""
    with served(enable_protected_configs="yes") as url:
        async with open_client(url) as client:
            await client.call("SET", "cache:1", 1)
            await client.call("CONFIG", "SET", "dir", "/proc")
            await client.call("BGSAVE")
            while "rdb_bgsave_in_progress:1" in as_text(await client.call("INFO", "persistence")):
                await asyncio.sleep(0.01)
            report = await audit(url, [catalogue])
    assert "persistence-failing" in about_server(report)


async def test_a_role_makes_other_keys_misplaced() -> None:
    """With a role given, keys of the other role are misplaced, and their absence is expected."""
    with served() as url:
        await with_keys(url, "cache:1", "queue:1")
        report = await audit(url, [catalogue], role="cache")
    assert [finding.keyspace for finding in of_kind(report, "misplaced")] == ["queue:{id}"]
    assert [finding.keyspace for finding in of_kind(report, "empty-keyspace")] == ["kept:{id}"]


async def test_the_mark_of_a_server_is_not_unknown() -> None:
    """The key with the server's mark counts as declared."""
    with served() as url:
        async with open_client(url) as client:
            await write_identity(client, "roles-cache")
        report = await with_keys(url, "cache:1")
    assert report.unknown.keys == 0
    assert [space.pattern for space in report.keyspaces] == [
        "cache:{id}",
        "kept:{id}",
        "queue:{id}",
        "ending:{id}",
    ]
