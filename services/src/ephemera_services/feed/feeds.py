"""Built feeds, and where they are kept: by user and version of the clusters, until a newer one or their end.

A feed of an older version is never read again, so that a cache needs no invalidation to be right; forgetting
old versions only saves room. Whoever writes late writes to a version that nobody asks for.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import EphemeraError

_SWEPT = 1_000  # feeds that one sweep removes


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster in words."""

    title: str
    summary: str
    size: int
    channel_ids: list[str]
    insight_ids: list[int]
    newest: datetime


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """What a user is shown of one version of their clusters."""

    user_id: str
    cluster_version: int
    built_at: datetime
    worded_by: str
    items: list[Item]
    unclustered: int


class CacheAway(EphemeraError):
    """The cache cannot be asked; feeds are built for every read until it can."""


class FeedCache(Protocol):
    """Keeps built feeds; raises `CacheAway` when it cannot."""

    async def get(self, user_id: str, version: int) -> Feed | None:
        """The feed of a version, while it is kept."""

    async def put(self, feed: Feed, ttl: timedelta) -> None:
        """Keep a feed for so long, instead of one of the same version."""

    async def forget(self, user_id: str, *, before: int) -> None:
        """Remove a user's feeds of versions before this one."""

    async def sweep(self) -> None:
        """Remove some of what is over, where the server does not by itself."""


class SqlFeeds:
    """Feeds as JSONB rows of PostgreSQL; its errors are SQL's."""

    def __init__(self, engine: AsyncEngine, table: sa.Table) -> None:
        self._engine = engine
        self._table = table

    async def get(self, user_id: str, version: int) -> Feed | None:
        """The feed of a version, while it is kept."""
        c = self._table.c
        query = sa.select(c.payload).where(
            c.user_id == user_id, c.cluster_version == version, c.expires_at > sa.func.clock_timestamp()
        )
        async with self._engine.connect() as sql:
            return read((await sql.execute(query)).scalar_one_or_none())

    async def put(self, feed: Feed, ttl: timedelta) -> None:
        """Keep a feed."""
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

    async def forget(self, user_id: str, *, before: int) -> None:
        """Remove older versions."""
        c = self._table.c
        async with self._engine.begin() as sql:
            await sql.execute(sa.delete(self._table).where(c.user_id == user_id, c.cluster_version < before))

    async def sweep(self) -> None:
        """Remove some of what is over."""
        c = self._table.c
        over = sa.select(c.user_id, c.cluster_version).where(c.expires_at <= sa.func.clock_timestamp())
        async with self._engine.begin() as sql:
            await sql.execute(
                sa.delete(self._table).where(
                    sa.tuple_(c.user_id, c.cluster_version).in_(over.order_by(c.expires_at).limit(_SWEPT))
                )
            )


def read(payload: Any) -> Feed | None:
    """A kept feed; one that another release has written and this one cannot read is as good as none."""
    try:
        return None if payload is None else msgspec.convert(payload, Feed)
    except msgspec.ValidationError:
        return None
