"""The declaration of a planner: its keys, its tables, its plans, and what a tick takes at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Store, check_declaration, fixed, sliding
from ephemera.patterns.locks import Locks
from ephemera.patterns.planner._plans import Plan, milliseconds
from ephemera.patterns.planner._runtime import Bound
from ephemera.patterns.planner._tables import PlannerTables
from ephemera.patterns.planner._tick import Limits

if TYPE_CHECKING:
    import sqlalchemy as sa

MARK = timedelta(seconds=300)
"""How long a user who was handed over is not handed over again, unless a worker ends before."""

_KEPT = timedelta(days=2)  # copies of what SQL has
_DIRTY_KEPT = timedelta(days=7)


class ChannelState(msgspec.Struct):
    """A channel as `ch:{channel_id}` has it."""

    current_seq: int
    last_ts: int  # milliseconds since 1970, as all moments here


class UserState(msgspec.Struct):
    """A user as `us:{user_id}` has them."""

    plan: str
    cluster_version: int
    pending: int  # what was left when the user was clustered last
    last_clustered_at: int
    last_active_at: int
    last_enqueued_at: int
    told_sql_at: int  # when SQL heard of the user's activity


class Planner:
    """The declaration: `store[PLANNER].using(engine)` gives the `BoundPlanner` of a store and a database.

    `window` is how far back a dataset and a new subscription reach. A run may take `longest_run`, its lock
    outlives a dead worker by `lease`. A tick takes `max_dirty_channels` and hands over `max_enqueued`. SQL
    hears of a user's activity every `touch_every`, and Redis of what it may have missed every `sweep_every`.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        metadata: sa.MetaData,
        *,
        plans: Mapping[str, Plan],
        window: timedelta = timedelta(days=30),
        longest_run: timedelta = timedelta(minutes=15),
        lease: timedelta = timedelta(seconds=60),
        max_dirty_channels: int = 10_000,
        max_enqueued: int = 5_000,
        touch_every: timedelta = timedelta(minutes=5),
        sweep_every: timedelta = timedelta(minutes=5),
        insight_columns: Sequence[sa.Column[Any]] = (),
        cluster_columns: Sequence[sa.Column[Any]] = (),
    ) -> None:
        check_declaration(
            catalogue,
            "planner",
            window=window,
            longest_run=longest_run,
            lease=lease,
            touch_every=touch_every,
            sweep_every=sweep_every,
        )
        if not plans or max_dirty_channels < 1 or max_enqueued < 1 or window <= timedelta(0):
            raise InvalidDeclaration(
                catalogue.name,
                f"a planner of {len(plans)} plans, {max_dirty_channels} channels and {max_enqueued} users a "
                f"tick, and a window of {window}",
                "give at least one plan, positive limits and a window",
            )
        self.plans = dict(plans)
        self.tables = PlannerTables(
            metadata, insight_columns=insight_columns, cluster_columns=cluster_columns
        )
        self.limits = Limits(max_dirty_channels, max_enqueued, milliseconds(MARK))
        self.window = milliseconds(window)
        self.longest_run = longest_run
        self.touch_every = milliseconds(touch_every)
        self.sweep_every = milliseconds(sweep_every)
        kept = fixed(seconds=_KEPT.total_seconds())
        self.channels = catalogue.hash(
            "ch:{channel_id}",
            ChannelState,
            lifetime=kept,
            purpose="How many insights a channel has had",
            saves="a SQL read for each channel at each tick",
            if_lost="read from SQL, and kept again",
        )
        self.marks = catalogue.mapping(
            "hwm:{user_id}",
            int,
            lifetime=kept,
            purpose="Up to which seq of each channel a user was clustered",
            saves="a SQL join for each user at each tick",
            invalidated_by=("a recount that finds it wrong",),
            if_lost="read from SQL, and kept again",
        )
        self.users = catalogue.hash(
            "us:{user_id}",
            UserState,
            lifetime=kept,
            purpose="When a user was active, clustered and handed over",
            saves="a SQL write for each sign of life",
            invalidated_by=("a recount that finds it wrong",),
            if_lost="read from SQL, and kept again",
        )
        self.dirty = catalogue.sorted_set(
            "dirty:channels",
            str,
            lifetime=sliding(seconds=_DIRTY_KEPT.total_seconds(), outlives="a tick, every minute at least"),
            role="queue",
            purpose="Channels with insights that no tick has looked at",
            saves="looking at all channels",
            invalidated_by=("the tick that looked at it",),
            if_lost="rebuilt from the channels' last insights",
        )
        self.enqueued = catalogue.flag(
            "enq:user:{user_id}",
            lifetime=fixed(seconds=MARK.total_seconds(), outlives="the user's place in the queue"),
            role="queue",
            purpose="A user was handed over",
            saves="asking SQL whether a user waits",
            invalidated_by=("the worker's end",),
            if_lost="SQL has the same mark",
        )
        self.user_lock = Locks(
            catalogue, "lock:user:{user_id}", lease=lease, purpose="One worker at a user's clusters"
        )
        self.tick_lock = Locks(
            catalogue, "lock:planner", lease=timedelta(seconds=30), purpose="One planner ticks at a time"
        )
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> Bound:
        """The planner of a store, which needs a database."""
        return Bound(self, store)

    def plan(self, name: str) -> Plan:
        """A plan by its name."""
        if name not in self.plans:
            known = ", ".join(self.plans)
            raise InvalidDeclaration(name, "no such plan is declared", f"plans are {known}")
        return self.plans[name]

    def __repr__(self) -> str:
        return f"<Planner of {self.dirty.catalogue}: {', '.join(self.plans)}>"
