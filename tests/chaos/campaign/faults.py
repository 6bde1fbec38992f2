"""Injects each fault and undoes it; the timeline records what was disturbed, what was lost, and when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

import psycopg

from ephemera.embedded import Valkey
from ephemera.errors import EmbeddedError, ServerError
from tests.chaos.campaign.proxy import Proxy, Trouble
from tests.chaos.campaign.schedule import Fault
from tests.chaos.campaign.servers import DOWN_AFTER, until

if TYPE_CHECKING:
    from tests.chaos.campaign.campaign import World

REPLICATION_LAG = 1.0
"""Seconds before a crash of the queue's master that the new one may not have, as documented."""
_ANSWER_DELAY = 2.0  # seconds from the queue's answer to ours, on a busy machine
_LOCKABLE = {
    "identity": ("users", "sign_ins"),
    "slides": ("jobs", "jobs_steps", "presentations"),
    "scripture": ("texts", "outbox_events", "user_history"),
    "feed": ("insights", "user_stats", "channels"),
    "league": ("votes", "matches"),
}


async def inject(world: World, fault: Fault) -> None:
    """Inject a fault, wait for its duration, and undo it."""
    match fault.kind:
        case "kill":
            await _kill(world, fault)
        case "stop":
            await _stop(world, fault)
        case "network":
            await _disturb_line(world, fault)
        case "failover":
            await _fail_over(world, fault)
        case "memory":
            await _fill(world, fault)
        case "sql":
            await _slow_sql(world, fault)
        case "clock":
            member = world.members[fault.target]
            with _disturbing(world, f"clock:{member.name}"):
                member.jump(fault.amount)
                await asyncio.sleep(fault.seconds)
                member.jump(0.0)
        case _:
            raise ValueError(f"there is no fault {fault.kind!r}")


async def _kill(world: World, fault: Fault) -> None:
    servers = world.servers
    match fault.target:
        case "cache":  # it persists nothing: it restarts empty
            with _disturbing(world, "cache", "cache-lost"):
                await asyncio.to_thread(servers.cache.kill)
                await asyncio.to_thread(servers.cache.restart)
                await asyncio.to_thread(world.mark)
        case "queue":  # it has its file, and restarts before a failover
            with _disturbing(world, "queue"):
                node = servers.queue.nodes[servers.queue.master()]
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.restart)
                await _wait_for_replica(world)
        case "postgres":
            with _disturbing(world, "sql"):
                await asyncio.to_thread(servers.postgres.kill)
                await asyncio.to_thread(servers.postgres.restart)
        case _:
            world.kill(fault.target, group=fault.how != "its first process")


async def _stop(world: World, fault: Fault) -> None:
    servers = world.servers
    if fault.target in ("cache", "queue"):
        queue = servers.queue
        node = servers.cache if fault.target == "cache" else queue.nodes[queue.master()]
        pause, resume = node.pause, node.resume
    else:
        member = world.members[fault.target]
        pause, resume = member.pause, member.resume
    with _disturbing(world, fault.target):
        pause()
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            resume()
        if fault.target == "queue":
            await _wait_for_replica(world)


async def _disturb_line(world: World, fault: Fault) -> None:
    line = _line(world, fault.target)
    with _disturbing(world, fault.target):
        await _disturb(world, line, cast("Trouble", fault.how), fault.seconds, fault.amount)
        if fault.target == "queue":
            await _wait_for_replica(world)


async def _disturb(world: World, line: Proxy, how: Trouble, seconds: float, late: float) -> None:
    world.network.trouble(line, how, late)
    try:
        await asyncio.sleep(seconds)
    finally:
        world.network.heal(line)


async def _fail_over(world: World, fault: Fault) -> None:
    queue = world.servers.queue
    before = queue.master()
    with _disturbing(world, "queue"):
        if fault.how == "orderly":
            await asyncio.to_thread(queue.fail_over)
        else:
            await _replace(world, before, dead=fault.how == "from a dead master")
        await _wait_for_replica(world)


async def _replace(world: World, old: int, *, dead: bool) -> None:
    """Remove the master until the replica leads, and bring it back as a replica."""
    queue, node = world.servers.queue, world.servers.queue.nodes[old]
    if dead:
        await asyncio.to_thread(node.kill)
    else:
        world.network.trouble(queue.lines[old], "cut")
    gone = time.monotonic()
    world.ledger.timeline.note("queue-crash", gone - REPLICATION_LAG, gone + _ANSWER_DELAY)
    try:
        await asyncio.to_thread(until, lambda: queue.master() != old, "a fail-over", 20 * DOWN_AFTER / 1000)
    finally:
        if dead:
            await asyncio.to_thread(node.restart)
        world.network.heal(queue.lines[old])
    # Sentinels would do the same within ten seconds.
    with suppress(OSError, ServerError):
        node.ask("REPLICAOF", "127.0.0.1", queue.lines[1 - old].port)


async def _fill(world: World, fault: Fault) -> None:
    servers = world.servers
    nodes = [servers.cache] if fault.target == "cache" else servers.queue.nodes
    parts = ("cache-lost",) if fault.target == "cache" else ("queue",)
    with _disturbing(world, *parts):
        before = [_setting(node, "maxmemory") for node in nodes]
        try:
            for node in nodes:
                room = 1.02 if fault.target == "cache" else 0.5
                node.ask("CONFIG", "SET", "maxmemory", int(_used(node) * room))
            await asyncio.sleep(fault.seconds)
        finally:
            for node, limit in zip(nodes, before, strict=True):
                node.ask("CONFIG", "SET", "maxmemory", limit)
        if fault.target == "cache":
            await asyncio.to_thread(world.mark)


def _used(node: Valkey) -> int:
    state = str(node.ask("INFO", "memory"))
    return int(state.partition("used_memory:")[2].split()[0])


def _setting(node: Valkey, name: str) -> str:
    _, value = cast("list[object]", node.ask("CONFIG", "GET", name))
    return str(value)


async def _slow_sql(world: World, fault: Fault) -> None:
    if fault.how == "late":
        with _disturbing(world, "sql"):
            await _disturb(world, world.servers.sql_line, "delay", fault.seconds, fault.amount)
        return
    tables = _LOCKABLE[fault.target]
    table = tables[int(fault.seconds * 10) % len(tables)]
    with _disturbing(world, "sql"):
        await asyncio.to_thread(_lock, world, fault.target, table, fault.seconds)


def _lock(world: World, system: str, table: str, seconds: float) -> None:
    with suppress(psycopg.Error), world.servers.sql(system) as sql, sql.transaction():
        sql.execute("SET LOCAL lock_timeout = '10s'")
        sql.execute(f"LOCK TABLE {system}.{table} IN ACCESS EXCLUSIVE MODE")
        time.sleep(seconds)


async def _wait_for_replica(world: World) -> None:
    try:
        await asyncio.to_thread(until, world.servers.queue.is_whole, "the queue with its replica")
    except (TimeoutError, EmbeddedError) as problem:
        world.trouble = str(problem)
        raise


def _line(world: World, target: str) -> Proxy:
    servers = world.servers
    if target == "queue":
        return servers.queue.lines[servers.queue.master()]
    return servers.cache_line if target == "cache" else servers.sql_line


@contextmanager
def _disturbing(world: World, *parts: str) -> Iterator[None]:
    timeline = world.ledger.timeline
    open_: list[int] = [timeline.begin(part) for part in parts]
    try:
        yield
    finally:
        for number in open_:
            timeline.end(number)
