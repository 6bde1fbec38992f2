"""Built feeds and their cache: by user and cluster version, until a newer version or their expiry.

A feed of an older version is never read again, so the cache is correct without invalidation; deleting old
versions only saves space. A late writer writes a version that no one reads.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import EphemeraError

_SWEEP_LIMIT = 1_000  # feeds that one sweep deletes


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with its title and summary."""

    title: str
    summary: str
    size: int
    channel_ids: list[str]
    insight_ids: list[int]
    newest: datetime
    item_id: int = 0
    """The first of its insights: the same in the next version, if the item still has it."""
    distinct: int = 0
    """Its insights without near-duplicates."""
    new: int = 0
    """Those that no earlier version had."""
    score: float = 0.0
    sources: list[str] = []
    unread: int = 0
    """How many of `insight_ids` the user has not read; counted when the feed is read."""


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """A user's feed for one version of their clusters."""

    user_id: str
    cluster_version: int
    built_at: datetime
    summarized_by: str
    items: list[Item]
    unclustered: int
    omitted: int = 0
    """Items beyond the largest number that a feed has: those of the lowest score."""
    next_cursor: str | None = None
    """Where the next page begins; None on the last one, and in the cache, which has whole feeds."""


class CacheUnavailable(EphemeraError):
    """The feed cache is unavailable; every read builds its feed in the meantime."""


class FeedCache(Protocol):
    """Stores built feeds; raises `CacheUnavailable` if it is down."""

    async def get(self, user_id: str, version: int) -> Feed | None:
        """The stored feed of a version, or None."""

    async def put(self, feed: Feed, ttl: timedelta) -> None:
        """Store a feed for `ttl`, replacing one of the same version."""

    async def delete_older(self, user_id: str, *, before: int) -> None:
        """Delete a user's feeds of versions before this one."""

    async def sweep(self) -> None:
        """Delete some expired feeds, if the server does not do it by itself."""


class SqlFeeds:
    """Feeds as JSONB rows in PostgreSQL; raises SQLAlchemy's errors."""

    def __init__(self, engine: AsyncEngine, table: sa.Table) -> None:
        self._engine = engine
        self._table = table

    async def get(self, user_id: str, version: int) -> Feed | None:
        """The stored feed of a version, or None."""
        c = self._table.c
        query = sa.select(c.payload).where(
            c.user_id == user_id, c.cluster_version == version, c.expires_at > sa.func.clock_timestamp()
        )
        async with self._engine.connect() as sql:
            return decode_feed((await sql.execute(query)).scalar_one_or_none())

    async def put(self, feed: Feed, ttl: timedelta) -> None:
        """Store a feed."""
        row = insert(self._table).values(
            user_id=feed.user_id,
            cluster_version=feed.cluster_version,
            built_at=feed.built_at,
            expires_at=sa.func.clock_timestamp() + ttl,
            payload=msgspec.to_builtins(feed),
        )
        changed = ("built_at", "expires_at", "payload")
        async with self._engine.begin() as sql:
            await sql.execute(
                row.on_conflict_do_update(
                    index_elements=["user_id", "cluster_version"],
                    set_={name: row.excluded[name] for name in changed},
                )
            )

    async def delete_older(self, user_id: str, *, before: int) -> None:
        """Delete older versions."""
        c = self._table.c
        async with self._engine.begin() as sql:
            await sql.execute(sa.delete(self._table).where(c.user_id == user_id, c.cluster_version < before))

    async def sweep(self) -> None:
        """Delete some expired feeds."""
        c = self._table.c
        expired = sa.select(c.user_id, c.cluster_version).where(c.expires_at <= sa.func.clock_timestamp())
        async with self._engine.begin() as sql:
            await sql.execute(
                sa.delete(self._table).where(
                    sa.tuple_(c.user_id, c.cluster_version).in_(
                        expired.order_by(c.expires_at).limit(_SWEEP_LIMIT)
                    )
                )
            )


def decode_feed(payload: Any) -> Feed | None:
    """Decode a stored feed; None if another release wrote one that this release cannot read."""
    try:
        return None if payload is None else msgspec.convert(payload, Feed)
    except msgspec.ValidationError:
        return None
