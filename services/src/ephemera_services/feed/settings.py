"""The settings of feed: `EPHEMERA_FEED_...`, besides those that all services share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

import msgspec

from ephemera_services.runtime import Secret, ServiceSettings

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Settings(ServiceSettings, kw_only=True, frozen=True):
    """The settings of feed."""

    service: ClassVar[str] = "feed"

    tokens: Secret | None = None
    """Bearer tokens of clients over HTTP and gRPC, with commas; required outside development."""

    # The plans: novelty, interval, activity and cooldown of each.
    free_novelty: Count = 20
    """New insights after which a user of the plan `free` is due."""
    free_every: timedelta = timedelta(days=2)
    """Time after which such a user is due with fewer insights."""
    free_active_within: timedelta = timedelta(days=7)
    """A user who was inactive for longer waits until they return."""
    free_cooldown: timedelta = timedelta(hours=6)
    """Minimum time between two rebuilds for a user."""
    pro_novelty: Count = 5
    """The same for the plan `pro`: new insights,"""
    pro_every: timedelta = timedelta(hours=12)
    """maximum interval,"""
    pro_active_within: timedelta = timedelta(days=14)
    """maximum inactivity,"""
    pro_cooldown: timedelta = timedelta(minutes=15)
    """and minimum time between two rebuilds."""

    window_days: Annotated[int, msgspec.Meta(ge=30, le=60)] = 30
    """How far back clusters reach, besides insights that were never clustered."""
    tick_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 30
    """Interval of the planner; 30 to 60 in production."""
    max_dirty_channels_per_tick: Count = 10_000
    """Dirty channels that one tick examines; the rest wait for the next one."""
    max_enqueued_per_tick: Count = 500
    """Users that one tick enqueues; 500 is what 16 builders do in 30 s."""
    builders: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    """Users that a worker clusters in parallel, each in a process."""
    largest_dataset: Annotated[int, msgspec.Meta(ge=10, le=5_000)] = 2_000
    """Number of newest insights that are clustered; the cost grows quadratically."""
    smallest_cluster: Annotated[int, msgspec.Meta(ge=2, le=100)] = 3
    """Minimum number of insights in a cluster."""
    cohesion: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    """Least mean similarity within a cluster; by default 0.15 for the lexical embedder, 0.28 for models."""

    embedder: Literal["lexical", "minilm", "openai"] = "lexical"
    """The embedder: lexical, a model in the process, or an OpenAI-compatible endpoint."""
    embedder_url: str | None = None
    """The base URL of an OpenAI-compatible endpoint, as in `http://127.0.0.1:11434/v1`."""
    embedder_model: str = "text-embedding-3-small"
    """The model name for the embedder's endpoint."""
    embedder_key: Secret | None = None
    """Sent to the embedder's endpoint as a bearer token."""
    model_url: str | None = None
    """An OpenAI-compatible endpoint that summarizes clusters; without it they are quoted."""
    model: str = "gpt-4o-mini"
    """The model name for the summarizing endpoint."""
    model_key: Secret | None = None
    """Sent to the summarizing endpoint as a bearer token."""

    mongodb_url: Secret | None = None
    """Where built feeds are stored; PostgreSQL by default."""
    feed_ttl: timedelta = timedelta(days=1)
    """How long a built feed is stored."""
    grpc_address: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.:\[\]-]+:\d{1,5}$")] = "127.0.0.1:50051"
    """Where `ephemera serve feed` listens for gRPC."""
    demo: bool = False
    """Create demo channels and users at startup."""
    worker_metrics_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    """Port of 127.0.0.1 where `ephemera worker feed` exposes its metrics; none by default."""
