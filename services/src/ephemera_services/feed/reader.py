"""Reading a feed: what is kept of the present version, or else that version put into words and kept.

One reader at a time has a user's feed worded, the others wait for it and find it kept. Without Redis, or when
it takes too long, they do it themselves: twice is dear, not wrong. A model that fails is stood in for by the
extractive wording, which is kept for a minute only. Without the cache, every read words.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import ConnectionFailed, LockLost, LockTimeout
from ephemera.patterns.locks import BoundLocks
from ephemera.patterns.planner import PlannerTables
from ephemera_services.feed.feeds import CacheAway, Feed, FeedCache, Item
from ephemera_services.feed.metrics import Metrics
from ephemera_services.feed.summarizer import (
    EXTRACTIVE,
    TEXTS_SHOWN,
    Extractive,
    Worded,
    Wording,
    WordingFailed,
)

logger = logging.getLogger(__name__)

_PATIENCE = 25.0  # seconds that a reader waits for another's wording: a little longer than it may take
_STOPGAP = timedelta(minutes=1)  # for which a feed is kept that the model did not word
_MOST_ITEMS = 20
_MOST_INSIGHTS = 100  # ids that an item lists


class Reader:
    """Reads users' feeds."""

    def __init__(
        self,
        engine: AsyncEngine,
        tables: PlannerTables,
        cache: FeedCache,
        wording: Wording,
        locks: BoundLocks,
        metrics: Metrics,
        ttl: timedelta,
    ) -> None:
        self._engine = engine
        self._tables = tables
        self._cache = cache
        self._wording = wording
        self._locks = locks
        self._metrics = metrics
        self._ttl = ttl

    async def feed(self, user_id: str) -> Feed | None:
        """A user's feed; None when there is no such user."""
        version = await self._version(user_id)
        if version is None:
            return None
        if version == 0:
            self._metrics.reads.labels("empty").inc()
            return Feed(
                user_id=user_id,
                cluster_version=0,
                built_at=datetime.now(UTC),
                worded_by=EXTRACTIVE,
                items=[],
                unclustered=0,
            )
        kept = await self._kept(user_id, version)
        if kept is not None:
            return kept
        try:
            async with self._locks.hold(user_id=user_id, timeout=_PATIENCE):
                return await self._kept_or_built(user_id)
        except (ConnectionFailed, LockTimeout, LockLost):
            return await self._kept_or_built(user_id)

    async def _kept_or_built(self, user_id: str) -> Feed | None:
        clusters = await self._clusters(user_id)
        if clusters is None:
            return None
        return await self._kept(user_id, clusters.cluster_version) or await self._built(clusters)

    async def _built(self, clusters: sa.Row[Any]) -> Feed:
        shown = clusters.clusters[:_MOST_ITEMS]
        texts = await self._texts([each["insights"][:TEXTS_SHOWN] for each in shown])
        began = time.perf_counter()
        wording, ttl = self._wording, self._ttl
        try:
            worded = await wording.word(texts) if texts else []
        except WordingFailed:
            self._metrics.errors.labels("model").inc()
            logger.warning("a feed was worded without the model", exc_info=True)
            wording, ttl = Extractive(), _STOPGAP
            worded = await wording.word(texts)
        self._metrics.model_seconds.observe(time.perf_counter() - began)
        self._metrics.reads.labels("built" if wording is self._wording else "without model").inc()
        feed = Feed(
            user_id=clusters.user_id,
            cluster_version=clusters.cluster_version,
            built_at=datetime.now(UTC),
            worded_by=wording.name,
            items=[_item(words, cluster) for words, cluster in zip(worded, shown, strict=True)],
            unclustered=clusters.unclustered or 0,
        )
        try:
            await self._cache.put(feed, ttl)
        except CacheAway:
            self._metrics.errors.labels("cache").inc()
        return feed

    async def _kept(self, user_id: str, version: int) -> Feed | None:
        try:
            kept = await self._cache.get(user_id, version)
        except CacheAway:
            self._metrics.errors.labels("cache").inc()
            return None
        if kept is not None:
            self._metrics.reads.labels("kept").inc()
        return kept

    async def _version(self, user_id: str) -> int | None:
        users = self._tables.user_stats
        query = sa.select(users.c.cluster_version).where(users.c.user_id == user_id)
        async with self._engine.connect() as sql:
            version: int | None = (await sql.execute(query)).scalar_one_or_none()
        return version

    async def _clusters(self, user_id: str) -> sa.Row[Any] | None:
        """A user's present clusters, of which there is always a row."""
        users, clusters = self._tables.user_stats, self._tables.clusters
        present = (clusters.c.user_id == users.c.user_id) & (
            clusters.c.cluster_version == users.c.cluster_version
        )
        query = sa.select(clusters).join(users, present).where(users.c.user_id == user_id)
        async with self._engine.connect() as sql:
            return (await sql.execute(query)).one_or_none()

    async def _texts(self, groups: Sequence[Sequence[int]]) -> list[list[str]]:
        """The texts of groups of insights."""
        table = self._tables.insights
        wanted = sa.bindparam(None, [each for group in groups for each in group], sa.ARRAY(sa.BigInteger))
        query = sa.select(table.c.insight_id, table.c.text).where(table.c.insight_id == sa.any_(wanted))
        async with self._engine.connect() as sql:
            texts = dict((await sql.execute(query)).all())
        return [[texts[each] for each in group if each in texts] for group in groups]


def _item(words: Worded, cluster: dict[str, Any]) -> Item:
    return Item(
        title=words.title,
        summary=words.summary,
        size=len(cluster["insights"]),
        channel_ids=cluster["channels"],
        insight_ids=cluster["insights"][:_MOST_INSIGHTS],
        newest=datetime.fromisoformat(cluster["newest"]),
    )
