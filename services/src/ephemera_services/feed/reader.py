"""Reading a feed: the stored one of the current version, or else a new one that is summarized and stored.

One reader at a time has a user's feed summarized; the others wait and then find it stored. Without Redis, or
after a timeout, they summarize it themselves: duplicate work is expensive but correct. If the model fails,
the extractive summary is used and stored for a minute. Without the feed cache, every read summarizes.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import ConnectionFailed, LockLost, LockTimeout, ServerError
from ephemera.patterns.locks import BoundLocks
from ephemera.patterns.planner import PlannerTables
from ephemera_services.feed.feeds import CacheUnavailable, Feed, FeedCache, Item
from ephemera_services.feed.metrics import Metrics
from ephemera_services.feed.summarizer import (
    EXTRACTIVE,
    TEXTS_PER_CLUSTER,
    ExtractiveSummarizer,
    Summarizer,
    SummarizerFailed,
    Summary,
)
from ephemera_services.feed.tables import is_one_of

logger = logging.getLogger(__name__)

_LOCK_TIMEOUT = 25.0  # seconds that a reader waits for another: a little more than a summary may take
_FALLBACK_TTL = timedelta(minutes=1)  # of a feed that the model did not summarize
_MAX_ITEMS = 100  # of a feed; it counts the others as omitted
_MODEL_ITEMS = 20  # the first ones, which the model summarizes; others are quoted
_MAX_INSIGHTS = 100  # ids per item
_CURSOR = re.compile(r"([1-9][0-9]{0,17})\.([1-9][0-9]{0,3})", re.ASCII)


class StaleCursor(Exception):
    """A cursor of another version, or none at all: the client starts with the first page again."""


class StaleVersion(Exception):
    """A version whose clusters are not stored any more, or never were: the client reads the feed again."""


def page(feed: Feed, cursor: str | None, limit: int) -> Feed:
    """Return a page of a feed, from a cursor on, with the cursor of the next one.

    A cursor is the version and an offset. It is not signed: whatever a client makes up is refused, or is
    another page of the same feed.
    """
    start = 0
    if cursor is not None:
        found = _CURSOR.fullmatch(cursor)
        if found is None or int(found[1]) != feed.cluster_version:
            raise StaleCursor
        start = int(found[2])
    end = start + limit
    following = f"{feed.cluster_version}.{end}" if end < len(feed.items) else None
    return msgspec.structs.replace(feed, items=feed.items[start:end], next_cursor=following)


class Member(NamedTuple):
    """An insight of an item, and those that say the same."""

    insight_id: int
    copies: list[int]


class FeedReader:
    """Reads users' feeds."""

    def __init__(
        self,
        engine: AsyncEngine,
        tables: PlannerTables,
        cache: FeedCache,
        summarizer: Summarizer,
        locks: BoundLocks,
        metrics: Metrics,
        ttl: timedelta,
    ) -> None:
        self._engine = engine
        self._tables = tables
        self._cache = cache
        self._summarizer = summarizer
        self._locks = locks
        self._metrics = metrics
        self._ttl = ttl

    async def feed(self, user_id: str) -> Feed | None:
        """A user's feed; None if there is no such user."""
        version = await self.version(user_id)
        if version is None:
            return None
        if version == 0:
            self._metrics.reads.labels("empty").inc()
            return Feed(
                user_id=user_id,
                cluster_version=0,
                built_at=datetime.now(UTC),
                summarized_by=EXTRACTIVE,
                items=[],
                unclustered=0,
            )
        cached = await self._cached(user_id, version)
        if cached is not None:
            return cached
        try:
            async with self._locks.hold(user_id=user_id, timeout=_LOCK_TIMEOUT):
                return await self._cached_or_built(user_id)
        except (ConnectionFailed, ServerError, LockTimeout, LockLost):  # also for a lock that is not ours
            return await self._cached_or_built(user_id)

    async def _cached_or_built(self, user_id: str) -> Feed | None:
        clusters = await self._clusters(user_id)
        if clusters is None:
            return None
        return await self._cached(user_id, clusters.cluster_version) or await self._build(clusters)

    async def _build(self, clusters: sa.Row[Any]) -> Feed:
        shown = clusters.clusters[:_MAX_ITEMS]
        texts = await self._texts([_most_telling(each) for each in shown])
        started = time.perf_counter()
        summarizer, ttl = self._summarizer, self._ttl
        try:
            summaries = await summarizer.summarize(texts[:_MODEL_ITEMS]) if texts else []
        except SummarizerFailed:
            self._metrics.errors.labels("model").inc()
            logger.warning("a feed was summarized without the model", exc_info=True)
            summarizer, ttl = ExtractiveSummarizer(), _FALLBACK_TTL
            summaries = await summarizer.summarize(texts[:_MODEL_ITEMS])
        summaries += await ExtractiveSummarizer().summarize(texts[_MODEL_ITEMS:])
        self._metrics.model_seconds.observe(time.perf_counter() - started)
        self._metrics.reads.labels("built" if summarizer is self._summarizer else "without model").inc()
        feed = Feed(
            user_id=clusters.user_id,
            cluster_version=clusters.cluster_version,
            built_at=datetime.now(UTC),
            summarized_by=summarizer.name,
            items=[_item(summary, cluster) for summary, cluster in zip(summaries, shown, strict=True)],
            unclustered=clusters.unclustered or 0,
            omitted=len(clusters.clusters) - len(shown),
        )
        try:
            await self._cache.put(feed, ttl)
        except CacheUnavailable:
            self._metrics.errors.labels("cache").inc()
        return feed

    async def _cached(self, user_id: str, version: int) -> Feed | None:
        try:
            cached = await self._cache.get(user_id, version)
        except CacheUnavailable:
            self._metrics.errors.labels("cache").inc()
            return None
        if cached is not None:
            self._metrics.reads.labels("cached").inc()
        return cached

    async def members(self, user_id: str, item_id: int, version: int | None = None) -> list[Member] | None:
        """The insights of an item, by centrality; None if there is no such item.

        By default of the current version. Of an older one only as long as it is stored, else `StaleVersion`.
        """
        clusters = await self._clusters(user_id, version)
        if version is not None and clusters is None and await self.version(user_id) is not None:
            raise StaleVersion
        for cluster in [] if clusters is None else clusters.clusters:
            if min(cluster["insights"]) == item_id:
                copies = cluster.get("copies", {})
                return [Member(each, copies.get(str(each), [])) for each in _distinct(cluster)]
        return None

    async def version(self, user_id: str) -> int | None:
        """The version of a user's clusters, 0 before the first; None if there is no such user."""
        users = self._tables.user_stats
        query = sa.select(users.c.cluster_version).where(users.c.user_id == user_id)
        async with self._engine.connect() as sql:
            version: int | None = (await sql.execute(query)).scalar_one_or_none()
        return version

    async def _clusters(self, user_id: str, version: int | None = None) -> sa.Row[Any] | None:
        """A user's clusters of a version; of the current one, by default, there is always a row."""
        users, clusters = self._tables.user_stats, self._tables.clusters
        wanted = users.c.cluster_version if version is None else version
        present = (clusters.c.user_id == users.c.user_id) & (clusters.c.cluster_version == wanted)
        query = sa.select(clusters).join(users, present).where(users.c.user_id == user_id)
        async with self._engine.connect() as sql:
            return (await sql.execute(query)).one_or_none()

    async def _texts(self, groups: Sequence[Sequence[int]]) -> list[list[str]]:
        """The texts of groups of insights."""
        table = self._tables.insights
        insight_ids = [each for group in groups for each in group]
        query = sa.select(table.c.insight_id, table.c.text).where(is_one_of(table.c.insight_id, insight_ids))
        async with self._engine.connect() as sql:
            texts = dict((await sql.execute(query)).all())
        return [[texts[each] for each in group if each in texts] for group in groups]


def _item(summary: Summary, cluster: dict[str, Any]) -> Item:
    return Item(
        title=summary.title,
        summary=summary.summary,
        size=len(cluster["insights"]),
        channel_ids=cluster["channels"],
        insight_ids=cluster["insights"][:_MAX_INSIGHTS],
        newest=datetime.fromisoformat(cluster["newest"]),
        item_id=min(cluster["insights"]),
        distinct=len(_distinct(cluster)),
        new=cluster.get("new", 0),  # an earlier release has stored less
        score=cluster.get("score", 0.0),
        sources=cluster.get("sources", []),
    )


def _most_telling(cluster: dict[str, Any]) -> list[int]:
    """The insights to summarize: those that say different things first."""
    distinct = dict.fromkeys(_distinct(cluster))
    return [*distinct, *(each for each in cluster["insights"] if each not in distinct)][:TEXTS_PER_CLUSTER]


def _distinct(cluster: dict[str, Any]) -> list[int]:
    """The insights of a cluster without those that repeat another one."""
    copies = {each for group in cluster.get("copies", {}).values() for each in group}
    return [each for each in cluster["insights"] if each not in copies]
