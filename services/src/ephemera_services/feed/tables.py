"""Feed's additions to the planner's tables: columns, built feeds, and the last tick."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

_TIMESTAMP = sa.DateTime(timezone=True)


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
    """Feed's own tables."""

    def __init__(self, metadata: sa.MetaData) -> None:
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
