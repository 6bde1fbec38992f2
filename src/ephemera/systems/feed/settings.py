"""What feed is told by its environment: `EPHEMERA_FEED_...`, besides what all systems take."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

import msgspec

from ephemera.systems.settings import Secret, SystemSettings

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Settings(SystemSettings, kw_only=True, frozen=True):
    """The settings of feed."""

    system: ClassVar[str] = "feed"

    # The plans: N, T, A and the cooldown of each.
    free_novelty: Count = 20
    free_every: timedelta = timedelta(days=2)
    free_active_within: timedelta = timedelta(days=7)
    free_cooldown: timedelta = timedelta(hours=6)
    pro_novelty: Count = 5
    pro_every: timedelta = timedelta(hours=12)
    pro_active_within: timedelta = timedelta(days=14)
    pro_cooldown: timedelta = timedelta(minutes=15)

    window_days: Annotated[int, msgspec.Meta(ge=30, le=60)] = 30
    """How far back clusters reach, besides what was never clustered."""
    tick_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 30
    """How often the planner looks; 30 to 60 in production."""
    max_dirty_channels_per_tick: Count = 10_000
    max_enqueued_per_tick: Count = 500
    builders: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    """Users that a worker clusters at once, each in a process."""
    largest_dataset: Annotated[int, msgspec.Meta(ge=10, le=5_000)] = 2_000
    """The newest insights that are clustered; a run's cost grows with their square."""
    smallest_cluster: Annotated[int, msgspec.Meta(ge=2, le=100)] = 3

    embedder: Literal["lexical", "minilm", "openai"] = "lexical"
    embedder_url: str | None = None
    """The base URL of an OpenAI-compatible endpoint, as in `http://127.0.0.1:11434/v1`."""
    embedder_model: str = "text-embedding-3-small"
    embedder_key: Secret | None = None
    model_url: str | None = None
    """An OpenAI-compatible endpoint that words the feed; without it, sentences of the insights do."""
    model: str = "gpt-4o-mini"
    model_key: Secret | None = None

    mongodb_url: Secret | None = None
    """Where built feeds are kept; in PostgreSQL without it."""
    feed_ttl: timedelta = timedelta(days=1)
    """How long a built feed is kept."""
    grpc_address: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.:\[\]-]+:\d{1,5}$")] = "127.0.0.1:50051"
    """Where `ephemera serve feed` listens for gRPC."""
    demo: bool = False
    """Whether `ephemera serve feed` makes some channels and users to look at."""
    worker_metrics_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    """Where `ephemera worker --system feed` shows its metrics, on 127.0.0.1; nowhere without it."""
