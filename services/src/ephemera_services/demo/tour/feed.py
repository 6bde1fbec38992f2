"""Feed on tour: Redis is stopped, the feed carries on from SQL, and goes back when Redis does."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from ephemera_services.demo.tour.guide import Guide, Skipped, Step
from ephemera_services.demo.traffic.feed import insight
from ephemera_services.demo.visitors import Visitor


async def _without_redis(guide: Guide) -> None:
    servers = guide.stage.servers
    if not servers.may_stop_redis:
        raise Skipped("Redis is not the demonstration's own (--url, --queue-url), so it is not stopped")
    async with guide.visitor("feed") as visitor:
        guide.tell("with Redis, a new reader's feed is built", await _read_anew(guide, visitor))
        try:
            await asyncio.gather(*(asyncio.to_thread(server.kill) for server in servers.own))
            guide.tell("both Redis servers are killed; GET /readyz", await _ready(visitor))
            guide.tell("without Redis, another reader's feed is built", await _read_anew(guide, visitor))
            await guide.until(lambda: _planner_reads(visitor, "sql"), "the planner reads SQL")
            guide.tell("the planner reads from", "SQL")
        finally:
            await asyncio.gather(*(asyncio.to_thread(server.restart) for server in servers.own))
        guide.tell("both are started again, the cache without any data")
        await guide.until(lambda: _planner_reads(visitor, "redis"), "the planner reads Redis")
        guide.tell("the planner reads from", "Redis")
        guide.tell("with Redis again, another reader's feed is built", await _read_anew(guide, visitor))
        await guide.until(lambda: _is_up(visitor), "the service says that Redis is up")
        guide.tell("GET /readyz", await _ready(visitor))


async def _read_anew(guide: Guide, visitor: Visitor) -> str:
    """A new channel and a new reader: what they read, when it is clustered."""
    name = uuid4().hex[:8]
    for _ in range(5):
        form = {"channel_id": f"tour-{name}", "text": insight("space")}
        await visitor.want(201, "POST", "/feed/insights", json=form)
    path = f"/feed/users/reader-{name}"
    await visitor.want(200, "PUT", f"{path}/subscriptions/tour-{name}", json={"plan": "pro"})

    async def built() -> dict[str, Any] | None:
        status: dict[str, Any] = await visitor.want(200, "GET", f"{path}/status")
        return status if status["cluster_version"] else None

    await guide.until(built, "the feed is built")
    feed = await visitor.want(200, "GET", path)
    sizes = [item["size"] for item in feed["items"]]
    guide.hold(sizes == [5], f"the feed has clusters of {sizes}")
    return f"version {feed['cluster_version']}, one cluster of 5 insights"


async def _planner_reads(visitor: Visitor, source: str) -> bool:
    planner = await visitor.want(200, "GET", "/feed/planner")
    return bool(planner["mode"] == source)


async def _is_up(visitor: Visitor) -> bool:
    return bool((await visitor.want(200, "GET", "/readyz"))["redis"] == "up")


async def _ready(visitor: Visitor) -> str:
    told = await visitor.want(200, "GET", "/readyz")
    return f"{told['status']}, Redis is {told['redis']}"


STEPS = (Step("feed", "Redis is stopped, and the feed carries on", _without_redis),)
