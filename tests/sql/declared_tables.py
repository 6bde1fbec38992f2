"""Everything of the library that has tables, with default and with other names, for tests of migrations."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import sqlalchemy as sa

from ephemera import Catalogue
from ephemera.patterns.events import OnceGuard
from ephemera.patterns.jobs import Jobs
from ephemera.patterns.locks import FenceGuard
from ephemera.patterns.planner import Plan, Planner
from ephemera.patterns.write_behind import DeferredCounters, DeferredRecords

DAY = timedelta(days=1)
PLANS = {"free": Plan(novelty=1, every=DAY, active_within=DAY, cooldown=timedelta(0))}


class Visit(msgspec.Struct):
    """A visit of a page."""

    page: str


class Declared:
    """Several declarations of each component, in the application's metadata."""

    def __init__(self, metadata: sa.MetaData, *, insight_columns: tuple[str, ...] = ("text",)) -> None:
        self.metadata = metadata
        self.catalogue = Catalogue("migrated")
        self.jobs = Jobs(self.catalogue, "job:{job_id}", queues=("work",), metadata=metadata)
        self.mails = Jobs(self.catalogue, "mail:{job_id}", queues=("work",), name="mails", metadata=metadata)
        columns = [sa.Column(name, sa.Text, index=True) for name in insight_columns]
        self.planner = Planner(self.catalogue, metadata, plans=PLANS, insight_columns=columns)
        self.news = Planner(self.catalogue, metadata, plans=PLANS, name="news")
        self.views = DeferredCounters(
            self.catalogue, "views", key=["page"], measures=["views"], purpose="Views of pages"
        )
        self.visits = DeferredRecords(self.catalogue, "visits", Visit, purpose="Visits")
        place = f"{metadata.schema}." if metadata.schema else ""
        self.once = OnceGuard(f"{place}handled_events")
        self.guards = (
            self.once,
            OnceGuard(f"{place}Other_Events"),
            FenceGuard(f"{place}lock_fences"),
        )
        self.all = (self.catalogue, *self.guards)


SHOP = Declared(sa.MetaData())
"""The declarations of a service, for the command line."""
