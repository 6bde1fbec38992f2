"""Feed's tables beside the planner's: origins of insights, read marks, built feeds, and the last tick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

_TIMESTAMP = sa.DateTime(timezone=True)

ORIGIN = ("source", "url", "published_at", "language")
"""The columns of an insight's origin."""


def insight_columns() -> list[sa.Column[Any]]:
    """An insight's text, and its embedding as 32-bit floats, null until an embedder succeeded."""
    return [
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("embedding", sa.LargeBinary),
        sa.Column("embedded_by", sa.Text, comment="vectors of different models are never compared"),
    ]


def cluster_columns() -> list[sa.Column[Any]]:
    """The size of a run's dataset."""
    return [
        sa.Column("dataset_size", sa.BigInteger),
        sa.Column("unclustered", sa.BigInteger, comment="insights that belong to no cluster"),
    ]


class FeedTables:
    """Feed's own tables; those about insights only beside the planner's table of insights."""

    def __init__(self, metadata: sa.MetaData, insights: sa.Table | None = None) -> None:
        if insights is not None:
            self.insight_origins = sa.Table(
                "insight_origins",
                metadata,
                _insight_id(insights),
                sa.Column("channel_id", sa.Text, nullable=False),
                sa.Column("source", sa.Text),
                sa.Column("url", sa.Text),
                sa.Column("published_at", _TIMESTAMP),
                sa.Column("language", sa.Text),
                sa.UniqueConstraint("channel_id", "url"),
            )
            self.read_marks = sa.Table(
                "read_marks",
                metadata,
                sa.Column("user_id", sa.Text, primary_key=True),
                _insight_id(insights, index=True),
                sa.Column("read_at", _TIMESTAMP, nullable=False),
            )
        self.feeds = sa.Table(
            "feeds",
            metadata,
            sa.Column("user_id", sa.Text, primary_key=True),
            sa.Column("cluster_version", sa.BigInteger, primary_key=True),
            sa.Column("built_at", _TIMESTAMP, nullable=False),
            sa.Column("expires_at", _TIMESTAMP, nullable=False, index=True),
            sa.Column("payload", JSONB, nullable=False),
        )
        self.last_tick = sa.Table(
            "last_tick",
            metadata,
            sa.Column("one", sa.Boolean, sa.CheckConstraint("one"), primary_key=True),
            sa.Column("tick", JSONB, nullable=False),
        )


def _insight_id(insights: sa.Table, *, index: bool = False) -> sa.Column[Any]:
    """Return a column of the primary key that ends with the insight; indexed, where it is not the first."""
    key = sa.ForeignKey(insights.c.insight_id, ondelete="CASCADE")
    return sa.Column("insight_id", sa.BigInteger, key, primary_key=True, autoincrement=False, index=index)


def is_one_of(column: sa.ColumnElement[int], values: Sequence[int]) -> sa.ColumnElement[bool]:
    """Test whether a column is one of these numbers, with one parameter for all of them."""
    return column == sa.any_(sa.bindparam(None, list(values), sa.ARRAY(sa.BigInteger)))
