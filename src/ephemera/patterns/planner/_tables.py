"""The tables of the SQL side, as SQLAlchemy Core tables in the application's own MetaData.

`insights` and `clusters` take further columns of the application (a text, an embedding). Every query of the
planner has an index here: subscribers of a channel, channels by their last insight, users by when they are
to be looked at, were clustered or were handed over, insights of a channel by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

_WHEN = sa.DateTime(timezone=True)


class PlannerTables:
    """The planner's tables in a MetaData; `metadata.create_all` creates them."""

    def __init__(
        self,
        metadata: sa.MetaData,
        *,
        insight_columns: Sequence[sa.Column[Any]] = (),
        cluster_columns: Sequence[sa.Column[Any]] = (),
    ) -> None:
        self.channels = sa.Table(
            "channels",
            metadata,
            sa.Column("channel_id", sa.Text, primary_key=True),
            sa.Column("current_seq", sa.BigInteger, nullable=False, server_default="0"),
            sa.Column("last_insight_ts", _WHEN, index=True),
        )
        self.insights = sa.Table(
            "insights",
            metadata,
            sa.Column("insight_id", sa.BigInteger, sa.Identity(), primary_key=True),
            sa.Column("channel_id", sa.ForeignKey(self.channels.c.channel_id), nullable=False),
            sa.Column("seq", sa.BigInteger, nullable=False),
            sa.Column("ts", _WHEN, nullable=False, server_default=sa.text("clock_timestamp()")),
            *insight_columns,
            sa.UniqueConstraint("channel_id", "seq"),
            sa.Index(None, "channel_id", "ts", "seq"),
        )
        self.subscriptions = sa.Table(
            "subscriptions",
            metadata,
            sa.Column("user_id", sa.Text, primary_key=True),
            sa.Column("channel_id", sa.ForeignKey(self.channels.c.channel_id), primary_key=True),
            sa.Index(None, "channel_id", "user_id"),
        )
        self.user_cluster_hwm = sa.Table(
            "user_cluster_hwm",
            metadata,
            sa.Column("user_id", sa.Text, primary_key=True),
            sa.Column("channel_id", sa.Text, primary_key=True),
            sa.Column("last_seq", sa.BigInteger, nullable=False),
        )
        self.user_stats = sa.Table(
            "user_stats",
            metadata,
            sa.Column("user_id", sa.Text, primary_key=True),
            sa.Column("plan", sa.Text, nullable=False),
            sa.Column("cluster_version", sa.BigInteger, nullable=False, server_default="0"),
            # What was left, or came, while the last clusters were made.
            sa.Column("pending_insights_count", sa.BigInteger, nullable=False, server_default="0"),
            sa.Column("last_clustered_at", _WHEN),
            sa.Column("last_active_at", _WHEN),
            sa.Column("last_enqueued_at", _WHEN),
            # Handed over, and not to be again before this moment or the worker's end.
            sa.Column("enqueued_until", _WHEN),
            # To be looked at again whatever the channels do.
            sa.Column("recheck_at", _WHEN),
            # The largest fence that began a run; a save by any other is refused.
            sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
            # The end of the run's time: what stands for its lock while Redis is away.
            sa.Column("running_until", _WHEN),
            sa.Index(None, "plan", sa.text("last_clustered_at NULLS FIRST")),
        )
        for column in (self.user_stats.c.recheck_at, self.user_stats.c.enqueued_until):
            sa.Index(f"ix_user_stats_{column.name}", column, postgresql_where=column.is_not(None))
        self.clusters = sa.Table(
            "clusters",
            metadata,
            sa.Column("user_id", sa.Text, primary_key=True),
            sa.Column("cluster_version", sa.BigInteger, primary_key=True),
            sa.Column("clusters", JSONB, nullable=False),
            sa.Column("updated_at", _WHEN, nullable=False, server_default=sa.text("clock_timestamp()")),
            *cluster_columns,
        )
        self.planner_state = sa.Table(
            "planner_state",
            metadata,
            sa.Column("one", sa.Boolean, sa.CheckConstraint("one"), primary_key=True),
            # Every insight that was committed before it has been looked at.
            sa.Column("examined_at", _WHEN, nullable=False),
            # Every insight that was committed before it is known to Redis, if Redis kept it.
            sa.Column("swept_at", _WHEN, nullable=False),
            # What the last tick did, whichever process it was; `Tick` as JSON.
            sa.Column("last_tick", JSONB),
        )
