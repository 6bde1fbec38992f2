"""What feed is told by its environment: `EPHEMERA_FEED_...`, besides what all systems take."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

import msgspec

from ephemera_services.runtime import Secret, ServiceSettings

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Settings(ServiceSettings, kw_only=True, frozen=True):
    """The settings of feed."""

    service: ClassVar[str] = "feed"

    # The plans: N, T, A and the cooldown of each.
    free_novelty: Count = 20
    """New insights that make a user of the plan `free` due."""
    free_every: timedelta = timedelta(days=2)
    """After how long such a user is due without them."""
    free_active_within: timedelta = timedelta(days=7)
    """Who was not there for longer than this waits until they come back."""
    free_cooldown: timedelta = timedelta(hours=6)
    """The least time between two rebuilds of a user."""
    pro_novelty: Count = 5
    """The same four for the plan `pro`: new insights,"""
    pro_every: timedelta = timedelta(hours=12)
    """time without them,"""
    pro_active_within: timedelta = timedelta(days=14)
    """how recently the user was there,"""
    pro_cooldown: timedelta = timedelta(minutes=15)
    """and the least time between two rebuilds."""

    window_days: Annotated[int, msgspec.Meta(ge=30, le=60)] = 30
    """How far back clusters reach, besides what was never clustered."""
    tick_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 30
    """How often the planner looks; 30 to 60 in production."""
    max_dirty_channels_per_tick: Count = 10_000
    """Channels with news that one tick looks at; the rest wait for the next."""
    max_enqueued_per_tick: Count = 500
    """Users that one tick hands to the workers; 500 is what 16 builders do in 30 s."""
    builders: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    """Users that a worker clusters at once, each in a process."""
    largest_dataset: Annotated[int, msgspec.Meta(ge=10, le=5_000)] = 2_000
    """The newest insights that are clustered; a run's cost grows with their square."""
    smallest_cluster: Annotated[int, msgspec.Meta(ge=2, le=100)] = 3
    """Insights that make a cluster; fewer stay unclustered."""

    embedder: Literal["lexical", "minilm", "openai"] = "lexical"
    """What makes vectors of insights: words alone, a model in the process, or an endpoint."""
    embedder_url: str | None = None
    """The base URL of an OpenAI-compatible endpoint, as in `http://127.0.0.1:11434/v1`."""
    embedder_model: str = "text-embedding-3-small"
    """The model that the embedder's endpoint is asked for."""
    embedder_key: Secret | None = None
    """Sent to the embedder's endpoint as a bearer token."""
    model_url: str | None = None
    """An OpenAI-compatible endpoint that words the feed; without it, sentences of the insights do."""
    model: str = "gpt-4o-mini"
    """The model that the wording endpoint is asked for."""
    model_key: Secret | None = None
    """Sent to the wording endpoint as a bearer token."""

    mongodb_url: Secret | None = None
    """Where built feeds are kept; in PostgreSQL without it."""
    feed_ttl: timedelta = timedelta(days=1)
    """How long a built feed is kept."""
    grpc_address: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.:\[\]-]+:\d{1,5}$")] = "127.0.0.1:50051"
    """Where `ephemera serve feed` listens for gRPC."""
    demo: bool = False
    """Whether `ephemera serve feed` makes some channels and users to look at."""
    worker_metrics_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    """Where `ephemera worker feed` shows its metrics, on 127.0.0.1; nowhere without it."""
