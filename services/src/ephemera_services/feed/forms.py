"""What feed's routes take and give, as its OpenAPI document shows it; gRPC takes the same."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

_ID = r"^[A-Za-z0-9._~@-]{1,128}$"
_TEXT = r"^[^\x00]*$"  # SQL keeps no NUL

UserId = Annotated[str, Field(pattern=_ID, examples=["ann"])]
ChannelId = Annotated[str, Field(pattern=_ID, examples=["space"])]
UserPath = Annotated[str, Path(pattern=_ID, examples=["ann"])]
ChannelPath = Annotated[str, Path(pattern=_ID, examples=["space"])]
PlanName = Literal["free", "pro"]


class _Taken(BaseModel):
    model_config = ConfigDict(extra="forbid")


class InsightForm(_Taken):
    """An insight of a channel."""

    channel_id: ChannelId
    text: Annotated[
        str,
        Field(min_length=1, max_length=10_000, pattern=_TEXT, examples=["The rocket reached its orbit."]),
    ]


class InsightView(BaseModel):
    """An insight that was published; `seq` counts 1, 2, 3 in its channel."""

    insight_id: int
    channel_id: str
    seq: int
    ts: datetime


class SubscriptionForm(_Taken):
    """The user's plan from now on; without it they keep theirs, and a new user is `free`."""

    plan: PlanName | None = None


class Subscribed(BaseModel):
    """Whether that is new."""

    subscribed: bool


class Unsubscribed(BaseModel):
    """Whether there was a subscription."""

    unsubscribed: bool


class ItemView(BaseModel):
    """A cluster in words; its insights nearest to its middle first, at most 100."""

    title: str
    summary: str
    size: int
    channel_ids: list[str]
    insight_ids: list[int]
    newest: datetime


class FeedView(BaseModel):
    """A user's feed; version 0 was never clustered."""

    user_id: str
    cluster_version: int
    built_at: datetime
    worded_by: Annotated[str, Field(description="The model, or `extractive`")]
    items: list[ItemView]
    unclustered: int


class StatusView(BaseModel):
    """How a user is; `pending` insights were never clustered for them."""

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
    """What the last tick did."""

    at: datetime | None
    seconds: float
    dirty: Annotated[int, Field(description="Channels looked at")]
    examined: Annotated[int, Field(description="Users looked at")]
    candidates: int
    enqueued: int
    postponed: int
    full: Annotated[bool, Field(description="There was more than a tick takes")]


class PlannerView(BaseModel):
    """How the planner is: where it reads from, what it did last, and who waits."""

    mode: Annotated[
        Literal["redis", "sql", "not begun"], Field(description="`sql`: Redis was away at the last tick")
    ]
    last_tick: TickView | None
    queue: Annotated[int, Field(description="Users handed over and not done with")]
    oldest_seconds: Annotated[float, Field(description="For how long the first of them has waited")]
