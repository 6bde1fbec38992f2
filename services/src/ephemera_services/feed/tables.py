"""What feed adds to the planner's tables: columns of insights and clusters, built feeds, the last tick."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

_WHEN = sa.DateTime(timezone=True)


def insight_columns() -> list[sa.Column[Any]]:
    """An insight's text, and its vector as 32-bit floats; none while no embedder could make it."""
    return [
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("embedding", sa.LargeBinary),
        sa.Column("embedded_by", sa.Text, comment="vectors of different models are never compared"),
    ]


def cluster_columns() -> list[sa.Column[Any]]:
    """What a run looked at."""
    return [
        sa.Column("dataset_size", sa.BigInteger),
        sa.Column("unclustered", sa.BigInteger, comment="insights that belong to no cluster"),
    ]


class FeedTables:
    """The tables of feed's own in a MetaData."""

    def __init__(self, metadata: sa.MetaData) -> None:
        self.feeds = sa.Table(
            "feeds",
            metadata,
            sa.Column("user_id", sa.Text, primary_key=True),
            sa.Column("cluster_version", sa.BigInteger, primary_key=True),
            sa.Column("built_at", _WHEN, nullable=False),
            sa.Column("expires_at", _WHEN, nullable=False, index=True),
            sa.Column("payload", JSONB, nullable=False),
        )
        self.last_tick = sa.Table(
            "last_tick",
            metadata,
            sa.Column("one", sa.Boolean, sa.CheckConstraint("one"), primary_key=True),
            sa.Column("tick", JSONB, nullable=False),
        )
