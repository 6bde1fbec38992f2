"""Request and response models of feed's routes; gRPC validates with the same."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from ephemera_services.runtime import RequestBody

_ID = r"^[A-Za-z0-9._~@-]{1,128}$"
_TEXT = r"^[^\x00]*$"  # PostgreSQL text cannot contain NUL

UserId = Annotated[str, Field(pattern=_ID, examples=["ann"])]
ChannelId = Annotated[str, Field(pattern=_ID, examples=["space"])]
UserPath = Annotated[str, Path(pattern=_ID, examples=["ann"])]
ChannelPath = Annotated[str, Path(pattern=_ID, examples=["space"])]
PlanName = Literal["free", "pro"]


class InsightForm(RequestBody):
    """An insight of a channel."""

    channel_id: ChannelId
    text: Annotated[
        str,
        Field(min_length=1, max_length=10_000, pattern=_TEXT, examples=["The rocket reached its orbit."]),
    ]


class InsightView(BaseModel):
    """A published insight; `seq` counts 1, 2, 3 in its channel."""

    insight_id: int
    channel_id: str
    seq: int
    ts: datetime


class SubscriptionForm(RequestBody):
    """The user's new plan; by default it is unchanged, and a new user gets `free`."""

    plan: PlanName | None = None


class Subscribed(BaseModel):
    """Whether the subscription is new."""

    subscribed: bool


class Unsubscribed(BaseModel):
    """Whether there was a subscription."""

    unsubscribed: bool


class ItemView(BaseModel):
    """A cluster with title and summary; insights nearest to its centroid first, at most 100."""

    title: str
    summary: str
    size: int
    channel_ids: list[str]
    insight_ids: list[int]
    newest: datetime


class FeedView(BaseModel):
    """A user's feed; version 0 means never clustered."""

    user_id: str
    cluster_version: int
    built_at: datetime
    summarized_by: Annotated[str, Field(description="The model, or `extractive`")]
    items: list[ItemView]
    unclustered: int


class StatusView(BaseModel):
    """A user's state; `pending` insights were never clustered for them."""

    model_config = ConfigDict(from_attributes=True)

    user_id: str
    plan: str
    cluster_version: int
    pending: int
    channel_ids: list[str]
    queued: bool
    last_clustered_at: datetime | None
    last_active_at: datetime | None
    last_enqueued_at: datetime | None


class TickView(BaseModel):
    """The last tick of the planner."""

    at: datetime | None
    seconds: float
    dirty: Annotated[int, Field(description="Channels examined")]
    examined: Annotated[int, Field(description="Users examined")]
    candidates: int
    enqueued: int
    postponed: int
    full: Annotated[bool, Field(description="There was more work than one tick handles")]


class PlannerView(BaseModel):
    """The planner: where it reads from, its last tick, and the queue."""

    mode: Annotated[
        Literal["redis", "sql", "not started"], Field(description="`sql`: Redis was down at the last tick")
    ]
    last_tick: TickView | None
    queue: Annotated[int, Field(description="Users enqueued and not finished")]
    oldest_seconds: Annotated[float, Field(description="How long the oldest of them has waited")]
