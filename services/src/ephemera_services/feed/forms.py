"""Request and response models of feed's routes; gRPC validates with the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from ephemera_services.feed.insights import NewInsight, canonical_url
from ephemera_services.runtime import RequestBody

_ID = r"^[A-Za-z0-9._~@-]{1,128}$"
_TEXT = r"^[^\x00]*$"  # PostgreSQL text cannot contain NUL
_LINE = r"^[^\x00-\x1f\x7f]*$"
_LANGUAGE = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$"
_FIRST_NEWS = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_AHEAD = timedelta(days=1)  # clocks and time zones of publishers are not always right

UserId = Annotated[str, Field(pattern=_ID, examples=["ann"])]
ChannelId = Annotated[str, Field(pattern=_ID, examples=["space"])]
UserPath = Annotated[str, Path(pattern=_ID, examples=["ann"])]
ChannelPath = Annotated[str, Path(pattern=_ID, examples=["space"])]
PlanName = Literal["free", "pro"]
Number = Annotated[int, Field(ge=1, le=2**63 - 1, examples=[1])]
NumberPath = Annotated[int, Path(ge=1, le=2**63 - 1, examples=[1])]
Limit = Annotated[int, Query(ge=1, le=100)]
Version = Annotated[
    int, Query(ge=1, le=2**63 - 1, description="`cluster_version` of the feed; by default the current one")
]
Cursor = Annotated[str, Field(min_length=1, max_length=32, description="`next_cursor` of the page before")]


def _storable_time(time: datetime) -> datetime:
    """Refuse times that are surely wrong, and those at the ends of the calendar, which have no UTC."""
    try:
        utc = time.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is out of range") from None
    if not _FIRST_NEWS <= utc <= datetime.now(UTC) + _MAX_AHEAD:
        raise ValueError("published_at is before 1970, or more than a day in the future")
    return utc


Source = Annotated[str, Field(min_length=1, max_length=200, pattern=_LINE, examples=["Example Daily"])]
Url = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2_000,
        description="`http` or `https`; stored without fragment and tracking parameters",
        examples=["https://news.example/rocket"],
    ),
    AfterValidator(canonical_url),
]
PublishedAt = Annotated[AwareDatetime, AfterValidator(_storable_time)]
Language = Annotated[
    str, Field(pattern=_LANGUAGE, description="A language tag (BCP 47)", examples=["en", "pt-BR"])
]


class InsightForm(RequestBody):
    """An insight of a channel."""

    channel_id: ChannelId
    text: Annotated[
        str,
        Field(min_length=1, max_length=10_000, pattern=_TEXT, examples=["The rocket reached its orbit."]),
    ]
    source: Annotated[Source | None, Field(description="Who published it")] = None
    url: Url | None = None
    published_at: PublishedAt | None = None
    language: Language | None = None

    def to_insight(self) -> NewInsight:
        """Return the insight to publish."""
        return NewInsight(**self.model_dump())


BULK_BYTES = 1024 * 1024
"""The most that a request with many insights has."""


class InsightsForm(RequestBody):
    """Insights to publish together: all of them, or none after an error."""

    insights: Annotated[list[InsightForm], Field(min_length=1, max_length=100)]


class InsightView(BaseModel):
    """A published insight; `seq` counts 1, 2, 3 in its channel."""

    model_config = ConfigDict(from_attributes=True)

    insight_id: int
    channel_id: str
    seq: int
    ts: datetime
    duplicate: Annotated[
        bool, Field(description="The channel had an insight of this URL, which is this one")
    ] = False


class InsightsView(BaseModel):
    """Published insights, in the order of the request."""

    insights: list[InsightView]


class InsightDetailView(BaseModel):
    """An insight as it was published."""

    model_config = ConfigDict(from_attributes=True)

    insight_id: int
    channel_id: str
    seq: int
    ts: datetime
    text: str
    source: str | None
    url: str | None
    published_at: datetime | None
    language: str | None


class ChannelInsightsView(BaseModel):
    """Insights of a channel, newest first; `before` the last seq there are more if the page is full."""

    insights: list[InsightDetailView]


class ItemInsightView(InsightDetailView):
    """An insight of an item; `duplicate_ids` say the same."""

    duplicate_ids: list[int]


class ItemInsightsView(BaseModel):
    """The insights of an item without near-duplicates, nearest to its centroid first, at most 100."""

    insights: list[ItemInsightView]


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
    item_id: Annotated[int, Field(description="Names the item in this version")]
    distinct: Annotated[int, Field(description="Insights without near-duplicates")]
    new: Annotated[int, Field(description="Insights that no earlier version had")]
    score: Annotated[float, Field(description="Recency, size and novelty; items are in its order")]
    sources: list[str]
    unread: Annotated[int, Field(description="How many of `insight_ids` the user has not read")]


class FeedView(BaseModel):
    """A page of a user's feed; version 0 means never clustered."""

    user_id: str
    cluster_version: int
    built_at: datetime
    summarized_by: Annotated[str, Field(description="The model, or `extractive`")]
    items: list[ItemView]
    unclustered: int
    omitted: Annotated[int, Field(description="Items beyond the first 100, which the feed does not have")]
    next_cursor: str | None


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
