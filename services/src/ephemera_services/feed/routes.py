"""Feed over HTTP: the same as `Aggregator` over gRPC, and how the planner is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request, Response

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
from ephemera_services.feed.service import Aggregator, moment
from ephemera_services.runtime import problem, problems

router = APIRouter(prefix="/feed", tags=["feed"])


def _service(request: Request) -> Aggregator:
    service: Aggregator = request.app.state.service
    return service


Service = Annotated[Aggregator, Depends(_service)]


@router.post("/insights", status_code=201)
async def publish(form: InsightForm, service: Service) -> InsightView:
    """An insight of a channel, which need not exist before."""
    insight = await service.publish(form.channel_id, form.text)
    return InsightView(
        insight_id=insight.insight_id,
        channel_id=insight.channel_id,
        seq=insight.seq,
        ts=datetime.fromtimestamp(insight.ts / 1000, UTC),
    )


@router.get("/planner")
async def planner(service: Service) -> PlannerView:
    """Where the planner reads from, what its last tick did, and how many users wait."""
    tick, queue = await service.planning()
    return PlannerView(
        mode="not begun" if tick is None else "sql" if tick.mode == "sql" else "redis",
        last_tick=None if tick is None else TickView(**{**msgspec.to_builtins(tick), "at": moment(tick.at)}),
        queue=queue.length,
        oldest_seconds=queue.oldest.total_seconds(),
    )


@router.get("/users/{user_id}", response_model=FeedView, responses=problems(404))
async def read(user_id: UserPath, service: Service) -> Response:
    """A user's feed, put into words when what is kept is of an older version."""
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
    """The user is there."""
    await service.touch(user_id)


@router.put("/users/{user_id}/subscriptions/{channel_id}")
async def subscribe(
    user_id: UserPath, channel_id: ChannelPath, form: SubscriptionForm, service: Service
) -> Subscribed:
    """Subscribe a user, who is made known by it, and may get a plan."""
    return Subscribed(subscribed=await service.subscribe(user_id, channel_id, form.plan))


@router.delete("/users/{user_id}/subscriptions/{channel_id}")
async def unsubscribe(user_id: UserPath, channel_id: ChannelPath, service: Service) -> Unsubscribed:
    """End a subscription."""
    return Unsubscribed(unsubscribed=await service.unsubscribe(user_id, channel_id))


def _unknown(user_id: str) -> Exception:
    return problem(404, f"There is no user {user_id!r}; a first subscription makes one.")
