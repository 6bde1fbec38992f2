"""Feed over HTTP: the same as `Aggregator` over gRPC, and the state of the planner."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from ephemera_services.feed.access import authorize
from ephemera_services.feed.forms import (
    ChannelPath,
    FeedView,
    InsightForm,
    InsightView,
    PlannerView,
    StatusView,
    Subscribed,
    SubscriptionForm,
    TickView,
    Unsubscribed,
    UserPath,
)
from ephemera_services.feed.service import Aggregator, to_datetime
from ephemera_services.runtime import problem, problems

router = APIRouter(prefix="/feed", tags=["feed"], dependencies=[Depends(authorize)])


def _service(request: Request) -> Aggregator:
    service: Aggregator = request.app.state.service
    return service


Service = Annotated[Aggregator, Depends(_service)]


@router.post("/insights", status_code=201)
async def publish(form: InsightForm, service: Service) -> InsightView:
    """Publish an insight in a channel, which need not exist before."""
    insight = await service.publish(form.channel_id, form.text)
    return InsightView(
        insight_id=insight.insight_id,
        channel_id=insight.channel_id,
        seq=insight.seq,
        ts=datetime.fromtimestamp(insight.ts / 1000, UTC),
    )


@router.get("/planner")
async def planner(service: Service) -> PlannerView:
    """Where the planner reads from, its last tick, and the length of the queue."""
    tick, queue = await service.planner_state()
    return PlannerView(
        mode="not started" if tick is None else "sql" if tick.mode == "sql" else "redis",
        last_tick=None
        if tick is None
        else TickView(**{**msgspec.to_builtins(tick), "at": to_datetime(tick.at)}),
        queue=queue.length,
        oldest_seconds=queue.oldest.total_seconds(),
    )


@router.get("/users/{user_id}", response_model=FeedView, responses=problems(404))
async def read(user_id: UserPath, service: Service) -> Response:
    """A user's feed; it is summarized if the stored one has an older version."""
    feed = await service.feed(user_id)
    if feed is None:
        raise _unknown(user_id)
    return Response(msgspec.json.encode(feed), media_type="application/json")


@router.get("/users/{user_id}/status", responses=problems(404))
async def status(user_id: UserPath, service: Service) -> StatusView:
    """A user's plan, version, novelty and subscriptions."""
    found = await service.status(user_id)
    if found is None:
        raise _unknown(user_id)
    return StatusView.model_validate(found)


@router.post("/users/{user_id}/touch", status_code=204)
async def touch(user_id: UserPath, service: Service) -> None:
    """Mark the user as active."""
    await service.touch(user_id)


@router.put("/users/{user_id}/subscriptions/{channel_id}")
async def subscribe(
    user_id: UserPath, channel_id: ChannelPath, form: SubscriptionForm, service: Service
) -> Subscribed:
    """Subscribe a user; a new user is created. May set their plan."""
    return Subscribed(subscribed=await service.subscribe(user_id, channel_id, form.plan))


@router.delete("/users/{user_id}/subscriptions/{channel_id}")
async def unsubscribe(user_id: UserPath, channel_id: ChannelPath, service: Service) -> Unsubscribed:
    """End a subscription."""
    return Unsubscribed(unsubscribed=await service.unsubscribe(user_id, channel_id))


def _unknown(user_id: str) -> Exception:
    return problem(404, f"There is no user {user_id!r}; subscribe them to a channel first.")
