"""Feed over HTTP: the same as `Aggregator` over gRPC, and the state of the planner."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from ephemera.web import last_event_id
from ephemera.web.fastapi import EVENT_RESPONSES, ProgressResponse
from ephemera_services.feed.access import authorize
from ephemera_services.feed.forms import (
    ChannelId,
    ChannelInsightsView,
    ChannelPath,
    Cursor,
    FeedView,
    InsightDetailView,
    InsightForm,
    InsightsForm,
    InsightsView,
    InsightView,
    ItemInsightsView,
    ItemInsightView,
    Limit,
    Number,
    NumberPath,
    PlannerView,
    StatusView,
    Subscribed,
    SubscriptionForm,
    TickView,
    Unsubscribed,
    UserPath,
    Version,
)
from ephemera_services.feed.reader import StaleCursor, StaleVersion
from ephemera_services.feed.service import PAGE, Aggregator, to_datetime
from ephemera_services.runtime import problem, problems

router = APIRouter(prefix="/feed", tags=["feed"], dependencies=[Depends(authorize)])


def _service(request: Request) -> Aggregator:
    service: Aggregator = request.app.state.service
    return service


Service = Annotated[Aggregator, Depends(_service)]
_EVENTS = {**EVENT_RESPONSES, **problems(404)}


@router.post(
    "/insights",
    status_code=201,
    responses={200: {"model": InsightView, "description": "The channel had an insight of this URL"}},
)
async def publish(form: InsightForm, service: Service, response: Response) -> InsightView:
    """Publish an insight in a channel, which need not exist before; a URL is published once."""
    [insight] = await service.insights.publish([form.to_insight()])
    if insight.duplicate:
        response.status_code = 200
    return InsightView.model_validate(insight)


@router.post("/bulk/insights")
async def publish_many(form: InsightsForm, service: Service) -> InsightsView:
    """Publish up to 100 insights in one transaction."""
    published = await service.insights.publish([each.to_insight() for each in form.insights])
    return InsightsView(insights=[InsightView.model_validate(each) for each in published])


@router.get("/insights")
async def insights_of_channel(
    channel_id: ChannelId, service: Service, before: Number | None = None, limit: Limit = PAGE
) -> ChannelInsightsView:
    """Insights of a channel, newest first, those with a `seq` before one."""
    found = await service.insights.of_channel(channel_id, before=before, limit=limit)
    return ChannelInsightsView(insights=[InsightDetailView.model_validate(each) for each in found])


@router.get("/insights/{insight_id}", responses=problems(404))
async def insight(insight_id: NumberPath, service: Service) -> InsightDetailView:
    """An insight as it was published."""
    found = await service.insights.get([insight_id])
    if not found:
        raise problem(404, "There is no such insight.")
    return InsightDetailView.model_validate(found[insight_id])


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


@router.get("/users/{user_id}", response_model=FeedView, responses=problems(404, 410))
async def read(
    user_id: UserPath, service: Service, limit: Limit = PAGE, cursor: Cursor | None = None
) -> Response:
    """A page of a user's feed; it is summarized if the stored one has an older version.

    A cursor is valid as long as its version: 410 means that there is a newer feed, which begins at its first
    page.
    """
    try:
        feed = await service.feed(user_id, limit, cursor)
    except StaleCursor:
        raise problem(410, "The cursor is not of the feed's current version; read its first page.") from None
    if feed is None:
        raise _unknown(user_id)
    return Response(msgspec.json.encode(feed), media_type="application/json")


@router.get("/users/{user_id}/events", response_class=ProgressResponse, responses=_EVENTS)
async def events(request: Request, user_id: UserPath, service: Service) -> Response:
    """Server-sent events: one with `cluster_version` whenever there is something new to read."""
    listener = await service.listen(user_id, last_event_id(request.scope))
    if listener is None:
        raise _unknown(user_id)
    return ProgressResponse(listener)


@router.get("/users/{user_id}/items/{item_id}/insights", responses=problems(404, 410))
async def insights_of_item(
    user_id: UserPath, item_id: NumberPath, service: Service, version: Version | None = None
) -> ItemInsightsView:
    """The insights of an item of a version, near-duplicates merged."""
    try:
        found = await service.item_insights(user_id, item_id, version)
    except StaleVersion:
        raise _stale_version() from None
    if found is None:
        raise _no_item()
    return ItemInsightsView(
        insights=[
            ItemInsightView(**each.insight._asdict(), duplicate_ids=each.duplicate_ids) for each in found
        ]
    )


@router.put("/users/{user_id}/items/{item_id}/read", status_code=204, responses=problems(404, 410))
async def mark_read(
    user_id: UserPath, item_id: NumberPath, service: Service, version: Version | None = None
) -> None:
    """Mark all insights of an item as read; with something new, it is unread again.

    Give the `cluster_version` of the feed that the user saw: what has come since then stays unread.
    """
    await _mark(service, user_id, item_id, read=True, version=version)


@router.delete("/users/{user_id}/items/{item_id}/read", status_code=204, responses=problems(404, 410))
async def mark_unread(
    user_id: UserPath, item_id: NumberPath, service: Service, version: Version | None = None
) -> None:
    """Mark all insights of an item as unread."""
    await _mark(service, user_id, item_id, read=False, version=version)


async def _mark(service: Aggregator, user_id: str, item_id: int, *, read: bool, version: int | None) -> None:
    try:
        found = await service.mark(user_id, item_id, read=read, version=version)
    except StaleVersion:
        raise _stale_version() from None
    if not found:
        raise _no_item()


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


def _no_item() -> Exception:
    return problem(404, "The user's feed of this version has no such item.")


def _stale_version() -> Exception:
    return problem(410, "This version of the feed is not stored; read the feed again.")


def _unknown(user_id: str) -> Exception:
    return problem(404, f"There is no user {user_id!r}; subscribe them to a channel first.")
