"""The audit changes nothing on a server except what its report states."""

from __future__ import annotations

import asyncio
import time

import pytest

from ephemera.embedded import Valkey
from ephemera.wire import Client, as_text, open_client
from tests.operations.audit_fixtures import KEYS, audited, stock
from tests.wire.debian_redis import DebianRedis


async def lookups(client: Client) -> int:
    """Hits and misses counted by the server."""
    stats = as_text(await client.call("INFO", "stats")).splitlines()
    counts = dict(line.split(":", 1) for line in stats if ":" in line)
    return int(counts["keyspace_hits"]) + int(counts["keyspace_misses"])


async def idle_times(client: Client) -> dict[bytes, int]:
    """Seconds since each key was accessed, according to the server."""
    _, keys = await client.call("SCAN", 0, "COUNT", 1000)
    return {key: await client.call("OBJECT", "IDLETIME", key) for key in keys}


async def until_all_are_idle(client: Client) -> dict[bytes, int]:
    """The idle times once each is at least two seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        idle = await idle_times(client)
        if min(idle.values()) >= 2:
            return idle
        await asyncio.sleep(0.1)
    raise AssertionError("the keys never became idle")


@pytest.mark.parametrize("plan", [{}, {"sample": 3}, {"contents": False}, {"sample": 0}])
async def test_hits_rise_by_what_the_report_says(shop: str, plan: dict[str, int]) -> None:
    """The server's hits and misses rise by exactly the lookups in the report."""
    async with open_client(shop) as client:
        before = await lookups(client)
        report = await audited(shop, **plan)
        assert await lookups(client) - before == report.impact.lookups
    assert (report.impact.lookups == 0) == (plan == {"sample": 0})


@pytest.mark.valkey("CLIENT NO-TOUCH came with Redis 7.2")
async def test_valkey_keeps_its_access_times(own_valkey: Valkey) -> None:
    """With CLIENT NO-TOUCH no key counts as accessed after an audit."""
    await stock(own_valkey.url)
    async with open_client(own_valkey.url) as client:
        before = await until_all_are_idle(client)
        report = await audited(own_valkey.url)
        after = await idle_times(client)
    assert report.impact.access_times_kept
    assert report.impact.contents_read == KEYS
    assert all(after[key] >= before[key] for key in before)


async def test_redis_7_0_reports_changed_access_times(own_redis: DebianRedis) -> None:
    """Without CLIENT NO-TOUCH the report counts the accessed keys, and --no-contents avoids it."""
    await stock(own_redis.url)
    async with open_client(own_redis.url) as client:
        before = await until_all_are_idle(client)
        careful = await audited(own_redis.url, contents=False)
        untouched = await idle_times(client)
        report = await audited(own_redis.url)
        after = await idle_times(client)
    assert careful.impact.contents_read == 0
    assert all(untouched[key] >= before[key] for key in before)
    assert not report.impact.access_times_kept
    assert report.impact.contents_read == KEYS
    assert sum(after[key] < before[key] for key in before) <= KEYS


async def test_nothing_is_written(shop: str) -> None:
    """An audit works as a read-only user, and changes no key."""
    async with open_client(shop) as client:
        await client.call("ACL", "SETUSER", "looker", "on", ">pw", "~*", "+@read", "+@connection", "+info")
        await client.call("ACL", "SETUSER", "looker", "+memory|usage", "+xinfo", "-@dangerous", "+info")
        dump = {key: await client.call("DUMP", key) for key in await idle_times(client)}
        report = await audited(f"redis://looker:pw@{shop.rpartition('@')[2]}")
        assert {key: await client.call("DUMP", key) for key in dump} == dump
    assert report.coverage.not_seen == []
    assert report.coverage.names == KEYS


async def test_a_forbidden_command_is_reported(shop: str) -> None:
    """If the user may not read sizes, the report says so and contains everything else."""
    async with open_client(shop) as client:
        await client.call("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all", "-memory")
        report = await audited(f"redis://half:pw@{shop.rpartition('@')[2]}")
    assert any("the results of MEMORY" in each for each in report.coverage.not_seen)
    assert all(space.size is None for space in report.keyspaces)
    assert all(space.sampled == 1 for space in report.keyspaces)
