"""Tour of feed: Redis is stopped, the feed continues from SQL, and returns to Redis afterwards."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from ephemera_services.demo.tour.guide import Guide, Step, StepSkipped
from ephemera_services.demo.traffic.feed import insight
from ephemera_services.demo.visitors import Visitor


async def _without_redis(guide: Guide) -> None:
    servers = guide.demo.servers
    if not servers.may_stop_redis:
        raise StepSkipped("Redis is not embedded (--url, --queue-url), so it is not stopped")
    async with guide.visitor("feed") as visitor:
        guide.report("with Redis, build a new reader's feed", await _build_feed(guide, visitor))
        try:
            await asyncio.gather(*(asyncio.to_thread(server.kill) for server in servers.embedded_redis))
            guide.report("kill both Redis servers; GET /readyz", await _ready(visitor))
            guide.report("without Redis, build another reader's feed", await _build_feed(guide, visitor))
            await guide.wait_until(lambda: _planner_reads(visitor, "sql"), "the planner reads SQL")
            guide.report("the planner reads from", "SQL")
        finally:
            await asyncio.gather(*(asyncio.to_thread(server.restart) for server in servers.embedded_redis))
        guide.report("start both again; the cache is empty")
        await guide.wait_until(lambda: _planner_reads(visitor, "redis"), "the planner reads Redis")
        guide.report("the planner reads from", "Redis")
        guide.report("with Redis again, build another reader's feed", await _build_feed(guide, visitor))
        await guide.wait_until(lambda: _is_up(visitor), "the service reports Redis as up")
        guide.report("GET /readyz", await _ready(visitor))


async def _build_feed(guide: Guide, visitor: Visitor) -> str:
    """Publish in a new channel, and wait until a new reader's feed is built from it."""
    name = uuid4().hex[:8]
    for _ in range(5):
        form = {"channel_id": f"tour-{name}", "text": insight("space")}
        await visitor.expect(201, "POST", "/feed/insights", json=form)
    path = f"/feed/users/reader-{name}"
    await visitor.expect(200, "PUT", f"{path}/subscriptions/tour-{name}", json={"plan": "pro"})

    async def built() -> dict[str, Any] | None:
        status: dict[str, Any] = await visitor.expect(200, "GET", f"{path}/status")
        return status if status["cluster_version"] else None

    await guide.wait_until(built, "the feed is built")
    feed = await visitor.expect(200, "GET", path)
    sizes = [item["size"] for item in feed["items"]]
    guide.check(sizes == [5], f"the feed has clusters of {sizes}")
    return f"version {feed['cluster_version']}, one cluster of 5 insights"


async def _planner_reads(visitor: Visitor, source: str) -> bool:
    planner = await visitor.expect(200, "GET", "/feed/planner")
    return bool(planner["mode"] == source)


async def _is_up(visitor: Visitor) -> bool:
    return bool((await visitor.expect(200, "GET", "/readyz"))["redis"] == "up")


async def _ready(visitor: Visitor) -> str:
    readiness = await visitor.expect(200, "GET", "/readyz")
    return f"{readiness['status']}, Redis is {readiness['redis']}"


STEPS = (Step("feed", "Redis is stopped, and the feed continues from SQL", _without_redis),)
