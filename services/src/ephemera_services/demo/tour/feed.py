"""Tour of feed: Redis is stopped, the feed continues from SQL, and returns to Redis afterwards."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from ephemera_services.demo.clients import DemoClient
from ephemera_services.demo.tour.steps import Step, StepContext, StepSkipped


async def _without_redis(context: StepContext) -> None:
    servers = context.demo.servers
    if not servers.may_stop_redis:
        raise StepSkipped("Redis is not embedded (--url, --queue-url), so it is not stopped")
    async with context.client("feed") as client:
        context.report("with Redis, build a new reader's feed", await _build_feed(context, client))
        try:
            await asyncio.gather(*(asyncio.to_thread(server.kill) for server in servers.embedded_redis))
            context.report("kill both Redis servers; GET /readyz", await _ready(client))
            context.report("without Redis, build another reader's feed", await _build_feed(context, client))
            await context.wait_until(lambda: _planner_reads(client, "sql"), "the planner reads SQL")
            context.report("the planner reads from", "SQL")
        finally:
            await asyncio.gather(*(asyncio.to_thread(server.restart) for server in servers.embedded_redis))
        context.report("start both again; the cache is empty")
        await context.wait_until(lambda: _planner_reads(client, "redis"), "the planner reads Redis")
        context.report("the planner reads from", "Redis")
        context.report("with Redis again, build another reader's feed", await _build_feed(context, client))
        await context.wait_until(lambda: _is_up(client), "the service reports Redis as up")
        context.report("GET /readyz", await _ready(client))


async def _build_feed(context: StepContext, client: DemoClient) -> str:
    """Publish in a new channel, and wait until a new reader's feed is built from it."""
    name = uuid4().hex[:8]
    for number in range(5):
        text = f"The rocket put a crew capsule and its satellite into orbit, says report {number}."
        form = {"channel_id": f"tour-{name}", "text": text}
        await client.expect(201, "POST", "/feed/insights", json=form)
    path = f"/feed/users/reader-{name}"
    await client.expect(200, "PUT", f"{path}/subscriptions/tour-{name}", json={"plan": "pro"})

    async def built() -> dict[str, Any] | None:
        status: dict[str, Any] = await client.expect(200, "GET", f"{path}/status")
        return status if status["cluster_version"] else None

    await context.wait_until(built, "the feed is built")
    feed = await client.expect(200, "GET", path)
    sizes = [item["size"] for item in feed["items"]]
    context.check(sizes == [5], f"the feed has clusters of {sizes}")
    return f"version {feed['cluster_version']}, one cluster of 5 insights"


async def _planner_reads(client: DemoClient, source: str) -> bool:
    planner = await client.expect(200, "GET", "/feed/planner")
    return bool(planner["mode"] == source)


async def _is_up(client: DemoClient) -> bool:
    return bool((await client.expect(200, "GET", "/readyz"))["redis"] == "up")


async def _ready(client: DemoClient) -> str:
    readiness = await client.expect(200, "GET", "/readyz")
    return f"{readiness['status']}, Redis is {readiness['redis']}"


STEPS = (Step("feed", "Redis is stopped, and the feed continues from SQL", _without_redis),)
