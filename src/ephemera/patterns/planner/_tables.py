"""The planner's tables, in the application's own MetaData, and the SQL expressions that its queries share.

`insights` and `clusters` take further columns of the application (a text, an embedding). Every query of the
planner has an index here: subscribers of a channel, channels by their last insight, users by when they are to
be rechecked, were clustered or were enqueued, insights of a channel by time. In Python all times are
milliseconds since 1970, 0 for never.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from ephemera.sql import SqlSchema

_WHEN = sa.DateTime(timezone=True)
_TEXTS = ARRAY(sa.Text)
_NUMBERS = ARRAY(sa.BigInteger)


class PlannerTables:
    """The planner's tables in a MetaData.

    Args:
        metadata: The MetaData that gets the tables.
        name: The prefix of their names; by default they have none.
        insight_columns: Columns of yours, added to the table of insights.
        cluster_columns: Columns of yours, added to the table of clusters.

    """

    def __init__(
        self,
        metadata: sa.MetaData,
        *,
        name: str | None = None,
        insight_columns: Sequence[sa.Column[Any]] = (),
        cluster_columns: Sequence[sa.Column[Any]] = (),
    ) -> None:
        prefix = f"{name}_" if name else ""
        self.channels = sa.Table(
            f"{prefix}channels",
            metadata,
            sa.Column("channel_id", sa.Text, primary_key=True),
            sa.Column("current_seq", sa.BigInteger, nullable=False, server_default="0"),
            sa.Column("last_insight_ts", _WHEN, index=True),
        )
        self.insights = sa.Table(
            f"{prefix}insights",
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
            f"{prefix}subscriptions",
            metadata,
            sa.Column("user_id", sa.Text, primary_key=True),
            sa.Column("channel_id", sa.ForeignKey(self.channels.c.channel_id), primary_key=True),
            sa.Index(None, "channel_id", "user_id"),
        )
        self.user_cluster_hwm = sa.Table(
            f"{prefix}user_cluster_hwm",
            metadata,
            sa.Column("user_id", sa.Text, primary_key=True),
            sa.Column("channel_id", sa.Text, primary_key=True),
            sa.Column("last_seq", sa.BigInteger, nullable=False),
        )
        self.user_stats = sa.Table(
            f"{prefix}user_stats",
            metadata,
            sa.Column("user_id", sa.Text, primary_key=True),
            sa.Column("plan", sa.Text, nullable=False),
            sa.Column("cluster_version", sa.BigInteger, nullable=False, server_default="0"),
            # Insights that arrived while the last clusters were built.
            sa.Column("pending_insights_count", sa.BigInteger, nullable=False, server_default="0"),
            sa.Column("last_clustered_at", _WHEN),
            sa.Column("last_active_at", _WHEN),
            sa.Column("last_enqueued_at", _WHEN),
            # Enqueued, and not to be enqueued again before this time or the end of the worker's run.
            sa.Column("enqueued_until", _WHEN),
            # When to recheck the user whatever the channels do.
            sa.Column("recheck_at", _WHEN),
            # The fencing token of the last run that began; a save by any other is refused.
            sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
            # The run's deadline: it replaces the lock while Redis is unavailable.
            sa.Column("running_until", _WHEN),
            # Runs that began since the last one that ended well, and not before when the next may begin.
            sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
            sa.Column("retry_at", _WHEN),
            sa.Column("last_error", sa.Text),
            sa.Index(None, "plan", sa.text("last_clustered_at NULLS FIRST")),
        )
        for column in (self.user_stats.c.recheck_at, self.user_stats.c.enqueued_until):
            sa.Index(f"ix_{prefix}user_stats_{column.name}", column, postgresql_where=column.is_not(None))
        self.clusters = sa.Table(
            f"{prefix}clusters",
            metadata,
            sa.Column("user_id", sa.Text, primary_key=True),
            sa.Column("cluster_version", sa.BigInteger, primary_key=True),
            sa.Column("clusters", JSONB, nullable=False),
            sa.Column("updated_at", _WHEN, nullable=False, server_default=sa.text("clock_timestamp()")),
            *cluster_columns,
        )
        self.planner_state = sa.Table(
            f"{prefix}planner_state",
            metadata,
            sa.Column("one", sa.Boolean, sa.CheckConstraint("one"), primary_key=True),
            # Every insight committed before this time has been examined.
            sa.Column("examined_at", _WHEN, nullable=False),
            # Every insight committed before this time was marked in Redis, unless Redis lost it.
            sa.Column("swept_at", _WHEN, nullable=False),
            # The last `Tick` of any process, as JSON.
            sa.Column("last_tick", JSONB),
        )
        self.sql_schema = SqlSchema(
            "planner",
            name or "planner",
            [each for each in vars(self).values() if isinstance(each, sa.Table)],
            application_columns=[*insight_columns, *cluster_columns],
        )


def timestamp(at: int) -> sa.ColumnElement[datetime]:
    """Convert milliseconds since 1970 to a timestamp."""
    return sa.func.to_timestamp(sa.bindparam(None, at / 1000, sa.Double))


def milliseconds_of(
    column: sa.ColumnElement[Any], rounded: Callable[[Any], sa.ColumnElement[Any]] = sa.func.floor
) -> sa.ColumnElement[int]:
    """Convert a timestamp to milliseconds since 1970; NULL is 0."""
    return sa.func.coalesce(rounded(sa.extract("epoch", column) * 1000), 0).cast(sa.BigInteger)


def is_one_of(column: sa.ColumnElement[Any], values: Collection[str]) -> sa.ColumnElement[bool]:
    """Test whether a column is one of these values, with one parameter for all of them."""
    return column == sa.any_(sa.bindparam(None, list(values), _TEXTS))


def to_timestamps(column: sa.ColumnElement[int]) -> sa.ColumnElement[datetime]:
    """Convert a column of milliseconds since 1970 to timestamps."""
    return sa.func.to_timestamp(column / sa.literal(1000.0, sa.Double))


def user_times(times: Mapping[str, int]) -> sa.TableValuedAlias:
    """Return users with a time each, as a table."""
    users = sa.bindparam(None, list(times), _TEXTS)
    values = sa.bindparam(None, list(times.values()), _NUMBERS)
    return (
        sa.func.unnest(users, values).table_valued("user_id", sa.column("at", sa.BigInteger)).render_derived()
    )


def interval(milliseconds: float) -> sa.ColumnElement[timedelta]:
    """Return a duration as an interval."""
    return sa.func.make_interval(0, 0, 0, 0, 0, 0, milliseconds / 1000)


def server_time() -> sa.ColumnElement[datetime]:
    """Return the server's time, which advances inside a transaction too."""
    return sa.func.clock_timestamp()
