"""Everything that feed keeps in Redis, and its tables: SQL has the truth, and Redis what spares asking it.

Plans, window and limits are settings, so a process declares its own (`Declared(settings)`); the keys are the
same whatever they are. `catalogue` is that of the usual settings, for `ephemera catalogue feed`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import msgspec
import sqlalchemy as sa

from ephemera import Catalogue
from ephemera.patterns.events import DeliveryPolicy, Events
from ephemera.patterns.locks import Locks
from ephemera.patterns.planner import Plan, Planner
from ephemera_services.feed.settings import Settings
from ephemera_services.feed.tables import FeedTables, cluster_columns, insight_columns

LONGEST_RUN = timedelta(minutes=4)
"""Shorter than the mark of who was handed over (300 s), so that a run ends before it can begin again."""


LOCKED = timedelta(seconds=10)
"""How long a dead worker's lock holds: shorter than the stream waits before it tells another (30 s)."""


class ClusterUpdate(msgspec.Struct, frozen=True):
    """A user to be clustered."""

    user_id: str
    reason: Literal["novelty", "time"]
    pending: int


class Declared:
    """The keys and tables of a service with these settings."""

    def __init__(self, settings: Settings) -> None:
        self.catalogue = Catalogue("feed")
        self.metadata = sa.MetaData(schema="feed")
        self.planner = Planner(
            self.catalogue,
            self.metadata,
            plans=plans(settings),
            window=timedelta(days=settings.window_days),
            longest_run=LONGEST_RUN,
            lease=LOCKED,
            max_dirty_channels=settings.max_dirty_channels_per_tick,
            max_enqueued=settings.max_enqueued_per_tick,
            insight_columns=insight_columns(),
            cluster_columns=cluster_columns(),
        )
        self.tables = FeedTables(self.metadata)
        self.updates: Events[ClusterUpdate] = Events(
            self.catalogue,
            "cluster_update",
            ClusterUpdate,
            delivery=DeliveryPolicy(max_deliveries=3, lease=timedelta(seconds=30), max_dead_letters=1_000),
            purpose="Users to be clustered, from the planner to the workers",
            if_lost="workers find who was handed over in SQL, half a minute later",
        )
        self.reading = Locks(
            self.catalogue,
            "lock:feed:{user_id}",
            lease=timedelta(seconds=30),
            purpose="One reader has a feed worded, the others wait for it",
        )


def plans(settings: Settings) -> dict[str, Plan]:
    """The plans that settings describe."""
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
        ),
    }


_usual = Declared(Settings())
catalogue, metadata = _usual.catalogue, _usual.metadata
