"""The running service: its parts, opened together and closed in reverse order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.patterns.embedders import Embedder
from ephemera.patterns.planner import BoundPlanner, Tick
from ephemera.patterns.progress import BoundProgress, Listener, Snapshot
from ephemera_services.feed.cluster_queue import ClusterQueue, QueueLength
from ephemera_services.feed.embeddings import open_embedder
from ephemera_services.feed.feeds import Feed, FeedCache, SqlFeeds
from ephemera_services.feed.insights import InsightDetail, Insights, NewInsight, PublishedInsight
from ephemera_services.feed.keys import FeedKeys, NewVersion
from ephemera_services.feed.metrics import Metrics
from ephemera_services.feed.planner import LastTick
from ephemera_services.feed.read_marks import ReadMarks
from ephemera_services.feed.reader import FeedReader, page
from ephemera_services.feed.settings import Settings
from ephemera_services.feed.summarizer import open_summarizer
from ephemera_services.runtime import Resources

DEFAULT_PLAN = "free"
PAGE = 20
"""Items of a page, by default."""
_MAX_MEMBERS = 100  # insights of an item that are shown


class ItemInsight(NamedTuple):
    """An insight of an item, and the ids of its near-duplicates."""

    insight: InsightDetail
    duplicate_ids: list[int]


@dataclass(frozen=True)
class UserStatus:
    """A user's current state in SQL."""

    user_id: str
    plan: str
    cluster_version: int
    pending: int
    channel_ids: list[str]
    queued: bool
    last_clustered_at: datetime | None
    last_active_at: datetime | None
    last_enqueued_at: datetime | None


@dataclass(frozen=True)
class Aggregator:
    """The operations behind both HTTP routes and gRPC methods."""

    settings: Settings
    store: Store
    engine: AsyncEngine
    planner: BoundPlanner
    embedder: Embedder
    insights: Insights
    marks: ReadMarks
    news: BoundProgress[NewVersion]
    cache: FeedCache
    queue: ClusterQueue
    last_tick: LastTick
    reader: FeedReader
    metrics: Metrics

    async def publish(self, channel_id: str, text: str, **origin: Any) -> PublishedInsight:
        """Publish an insight; `origin` has any of source, URL, published time and language."""
        [published] = await self.insights.publish([NewInsight(channel_id, text, **origin)])
        return published

    async def subscribe(self, user_id: str, channel_id: str, plan: str | None) -> bool:
        """Subscribe a user, and create them if needed; False if they were subscribed already."""
        if plan is not None:
            await self.planner.enroll(user_id, plan=plan)
        else:
            await self._ensure_user(user_id)
        return await self.planner.subscribe(user_id, channel_id)

    async def _ensure_user(self, user_id: str) -> None:
        users = self.planner.tables.user_stats
        row = insert(users).values(
            user_id=user_id, plan=DEFAULT_PLAN, last_active_at=sa.func.clock_timestamp()
        )
        async with self.engine.begin() as sql:
            await sql.execute(row.on_conflict_do_nothing())

    async def unsubscribe(self, user_id: str, channel_id: str) -> bool:
        """End a subscription; False if there was none."""
        return await self.planner.unsubscribe(user_id, channel_id)

    async def touch(self, user_id: str) -> None:
        """Mark a user as active; an unknown user is not created."""
        await self.planner.touch(user_id)

    async def feed(self, user_id: str, limit: int = PAGE, cursor: str | None = None) -> Feed | None:
        """A page of a user's feed, None if there is no such user; reading marks them as active.

        `StaleCursor` if the cursor is of another version.
        """
        feed = await self.reader.feed(user_id)
        if feed is None:
            return None
        shown = page(feed, cursor, limit)
        await self.planner.touch(user_id)
        if not shown.items:
            return shown
        read = await self.marks.among(user_id, [each for item in shown.items for each in item.insight_ids])
        items = [
            msgspec.structs.replace(item, unread=sum(each not in read for each in item.insight_ids))
            for item in shown.items
        ]
        return msgspec.structs.replace(shown, items=items)

    async def item_insights(
        self, user_id: str, item_id: int, version: int | None = None
    ) -> list[ItemInsight] | None:
        """The insights of an item, nearest to its centroid first; None if there is no such item.

        With a version, those that the item had in it; `StaleVersion` if it is not stored any more.
        """
        members = await self.reader.members(user_id, item_id, version)
        if members is None:
            return None
        shown = members[:_MAX_MEMBERS]
        found = await self.insights.get([each.insight_id for each in shown])
        return [
            ItemInsight(found[each.insight_id], each.copies) for each in shown if each.insight_id in found
        ]

    async def mark(self, user_id: str, item_id: int, *, read: bool, version: int | None = None) -> bool:
        """Mark the insights of an item as read or unread; False if there is no such item.

        With a version, only those that the item had in it: what came later was not shown to the user.
        `StaleVersion` if it is not stored any more.
        """
        members = await self.reader.members(user_id, item_id, version)
        if members is None:
            return False
        insight_ids = [each for member in members for each in (member.insight_id, *member.copies)]
        await (self.marks.add if read else self.marks.remove)(user_id, insight_ids)
        return True

    async def listen(self, user_id: str, after: str | None) -> Listener[NewVersion] | None:
        """Listen for new versions of a user's clusters; None if there is no such user."""
        if await self.reader.version(user_id) is None:
            return None

        async def snapshot(user_id: str) -> Snapshot:
            return Snapshot({"cluster_version": await self.reader.version(user_id)}, ended=False)

        return self.news.listen(user_id=user_id, after=after, snapshot=snapshot)

    async def status(self, user_id: str) -> UserStatus | None:
        """A user's state; None if there is no such user."""
        known = await self.planner.user(user_id)
        if known is None:
            return None
        users, subscriptions = self.planner.tables.user_stats.c, self.planner.tables.subscriptions.c
        queued = sa.select(users.enqueued_until > sa.func.clock_timestamp()).where(users.user_id == user_id)
        channels = (
            sa.select(subscriptions.channel_id)
            .where(subscriptions.user_id == user_id)
            .order_by(subscriptions.channel_id)
        )
        async with self.engine.connect() as sql:
            is_queued = bool((await sql.execute(queued)).scalar_one_or_none())
            channel_ids = list((await sql.execute(channels)).scalars())
        facts = known.facts
        return UserStatus(
            user_id=user_id,
            plan=facts.plan,
            cluster_version=known.cluster_version,
            pending=facts.pending,
            channel_ids=channel_ids,
            queued=is_queued,
            last_clustered_at=to_datetime(facts.last_clustered_at),
            last_active_at=to_datetime(facts.last_active_at),
            last_enqueued_at=to_datetime(facts.last_enqueued_at),
        )

    async def planner_state(self) -> tuple[Tick | None, QueueLength]:
        """The last tick of all processes, and the length of the queue."""
        tick, queue = await asyncio.gather(self.last_tick.read(), self.queue.length())
        return tick, queue


def to_datetime(milliseconds: int) -> datetime | None:
    """Convert a time of the planner; 0 means never."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


@asynccontextmanager
async def open_aggregator(
    settings: Settings, keys: FeedKeys, resources: Resources
) -> AsyncIterator[Aggregator]:
    """Open the parts that the service and its workers share."""
    store, engine = resources.store, resources.engine
    async with AsyncExitStack() as stack:
        embedder = await stack.enter_async_context(open_embedder(settings))
        summarizer = await stack.enter_async_context(open_summarizer(settings))
        cache = await _open_cache(stack, settings, keys, engine)
        planner, metrics = store[keys.planner], Metrics(resources.registry)
        reader = FeedReader(
            engine,
            planner.tables,
            cache,
            summarizer,
            store[keys.reading],
            metrics,
            settings.feed_ttl,
        )
        yield Aggregator(
            settings=settings,
            store=store,
            engine=engine,
            planner=planner,
            embedder=embedder,
            insights=Insights(engine, planner, keys.tables, embedder, metrics),
            marks=ReadMarks(engine, keys.tables.read_marks, planner.tables.insights),
            news=store[keys.news],
            cache=cache,
            queue=ClusterQueue(store[keys.updates], engine, planner.tables, metrics),
            last_tick=LastTick(engine, keys.tables.last_tick),
            reader=reader,
            metrics=metrics,
        )


async def _open_cache(
    stack: AsyncExitStack, settings: Settings, keys: FeedKeys, engine: AsyncEngine
) -> FeedCache:
    if settings.mongodb_url is None:
        return SqlFeeds(engine, keys.tables.feeds)
    from ephemera_services.feed.mongo_feeds import open_mongo_feeds

    return await stack.enter_async_context(open_mongo_feeds(settings.mongodb_url.reveal()))
