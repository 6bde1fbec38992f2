"""Everything that feed keeps in Redis, and its tables. SQL is the source of truth.

Plans, window and limits are settings, so each process declares its own keys (`FeedKeys(settings)`); their
patterns do not depend on the settings. `catalogue` has the default settings, for `ephemera catalogue feed`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue
from ephemera.patterns.events import DeliveryPolicy, Events
from ephemera.patterns.locks import Locks
from ephemera.patterns.planner import Plan, Planner, PlannerRetention, PlannerTiming, TickLimits
from ephemera.patterns.progress import Progress
from ephemera_services.feed.settings import Settings
from ephemera_services.feed.tables import FeedTables, cluster_columns, insight_columns
from ephemera_services.runtime import declare_tables

MAX_RUN = timedelta(minutes=4)
"""Shorter than the mark of an enqueued user (300 s), so that a run ends before the user is enqueued again."""


LOCK_LEASE = timedelta(seconds=10)
"""How long a dead worker's lock lasts: shorter than the stream's lease of a delivery (30 s)."""


class ClusterUpdate(msgspec.Struct, frozen=True):
    """A user to be clustered."""

    user_id: str
    reason: Literal["novelty", "time"]
    pending: int


class NewVersion(msgspec.Struct, frozen=True):
    """A user's clusters have a new version: there is something new to read."""

    cluster_version: int


class FeedKeys:
    """The keys and tables for some settings."""

    def __init__(self, settings: Settings) -> None:
        self.catalogue = Catalogue("feed")
        self.metadata = sa.MetaData(schema="feed")
        self.planner = Planner(
            self.catalogue,
            self.metadata,
            plans=plans(settings),
            window=timedelta(days=settings.window_days),
            timing=PlannerTiming(run_timeout=MAX_RUN, lease=LOCK_LEASE),
            limits=TickLimits(settings.max_dirty_channels_per_tick, settings.max_enqueued_per_tick),
            retention=PlannerRetention(
                insights=3 * timedelta(days=settings.window_days),
                versions=3,  # the current one, and two for concurrent readers
            ),
            insight_columns=insight_columns(),
            cluster_columns=cluster_columns(),
        )
        self.tables = FeedTables(self.metadata, self.planner.tables.insights)
        declare_tables(self.catalogue, self.metadata)
        self.updates: Events[ClusterUpdate] = Events(
            self.catalogue,
            "cluster_update",
            ClusterUpdate,
            delivery=DeliveryPolicy(max_deliveries=3, lease=timedelta(seconds=30), max_dead_letters=1_000),
            purpose="Users to be clustered, from the planner to the workers",
            if_lost="workers find enqueued users in SQL, half a minute later",
        )
        self.news: Progress[NewVersion] = Progress(
            self.catalogue,
            "feed_news:{user_id}",
            NewVersion,
            wake="pubsub:feed_news",
            terminal=(),
            max_entries=10,
            purpose="New versions of a user's clusters, for open readers",
        )
        self.reading = Locks(
            self.catalogue,
            "lock:feed:{user_id}",
            lease=timedelta(seconds=30),
            purpose="One reader has a feed summarized while the others wait",
        )

    def store_resources(self, engine: AsyncEngine) -> dict[Any, object]:
        """The `resources=` of the service's store."""
        return {self.planner: engine}


def plans(settings: Settings) -> dict[str, Plan]:
    """The plans of the settings."""
    return {
        "free": Plan(
            novelty=settings.free_novelty,
            every=settings.free_every,
            active_within=settings.free_active_within,
            cooldown=settings.free_cooldown,
        ),
        "pro": Plan(
            novelty=settings.pro_novelty,
            every=settings.pro_every,
            active_within=settings.pro_active_within,
            cooldown=settings.pro_cooldown,
            priority=1,
        ),
    }


_default = FeedKeys(Settings())
catalogue, metadata = _default.catalogue, _default.metadata
