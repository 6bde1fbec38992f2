"""The service itself: its parts, opened together and closed in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.patterns.embedders import Embedder
from ephemera.patterns.planner import BoundPlanner, Insight, Tick
from ephemera_services.feed.cluster_queue import HandingOver, Queue
from ephemera_services.feed.embeddings import columns_of, opened_embedder
from ephemera_services.feed.feeds import Feed, FeedCache, SqlFeeds
from ephemera_services.feed.keys import Declared
from ephemera_services.feed.metrics import Metrics
from ephemera_services.feed.planner import LastTick
from ephemera_services.feed.reader import Reader
from ephemera_services.feed.settings import Settings
from ephemera_services.feed.summarizer import opened_wording
from ephemera_services.runtime import Resources

NEW_USERS_PLAN = "free"


@dataclass(frozen=True)
class UserStatus:
    """A user as SQL has them at this moment."""

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
    """What HTTP routes and gRPC methods both do."""

    settings: Settings
    store: Store
    engine: AsyncEngine
    planner: BoundPlanner
    embedder: Embedder
    cache: FeedCache
    queue: HandingOver
    last_tick: LastTick
    reader: Reader
    metrics: Metrics

    async def publish(self, channel_id: str, text: str) -> Insight:
        """An insight, with its vector if one can be had."""
        columns = await columns_of(self.embedder, text)
        if not columns:
            self.metrics.errors.labels("embedder").inc()
        insight = await self.planner.publish(channel_id, text=text, **columns)
        self.metrics.published.inc()
        return insight

    async def subscribe(self, user_id: str, channel_id: str, plan: str | None) -> bool:
        """Subscribe a user, who is made known by it; False when they were subscribed."""
        if plan is not None:
            await self.planner.enroll(user_id, plan=plan)
        else:
            await self._have(user_id)
        return await self.planner.subscribe(user_id, channel_id)

    async def _have(self, user_id: str) -> None:
        users = self.planner.tables.user_stats
        row = insert(users).values(
            user_id=user_id, plan=NEW_USERS_PLAN, last_active_at=sa.func.clock_timestamp()
        )
        async with self.engine.begin() as sql:
            await sql.execute(row.on_conflict_do_nothing())

    async def unsubscribe(self, user_id: str, channel_id: str) -> bool:
        """End a subscription; False when there was none."""
        return await self.planner.unsubscribe(user_id, channel_id)

    async def touch(self, user_id: str) -> None:
        """The user is there; one who is unknown stays so."""
        await self.planner.touch(user_id)

    async def feed(self, user_id: str) -> Feed | None:
        """A user's feed, None when there is no such user; whoever reads is there."""
        feed = await self.reader.feed(user_id)
        if feed is not None:
            await self.planner.touch(user_id)
        return feed

    async def status(self, user_id: str) -> UserStatus | None:
        """How a user is; None when there is none."""
        known = await self.planner.user(user_id)
        if known is None:
            return None
        users, theirs = self.planner.tables.user_stats.c, self.planner.tables.subscriptions.c
        queued = sa.select(users.enqueued_until > sa.func.clock_timestamp()).where(users.user_id == user_id)
        channels = sa.select(theirs.channel_id).where(theirs.user_id == user_id).order_by(theirs.channel_id)
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
            last_clustered_at=moment(facts.last_clustered_at),
            last_active_at=moment(facts.last_active_at),
            last_enqueued_at=moment(facts.last_enqueued_at),
        )

    async def planning(self) -> tuple[Tick | None, Queue]:
        """The last tick of all processes, and who waits."""
        tick, queue = await asyncio.gather(self.last_tick.read(), self.queue.queue())
        return tick, queue


def moment(milliseconds: int) -> datetime | None:
    """A moment of the planner's; 0 is never."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


@asynccontextmanager
async def open_aggregator(
    settings: Settings, declared: Declared, resources: Resources
) -> AsyncIterator[Aggregator]:
    """The parts that the service and its workers share."""
    store, engine = resources.store, resources.engine
    async with AsyncExitStack() as stack:
        embedder = await stack.enter_async_context(opened_embedder(settings))
        wording = await stack.enter_async_context(opened_wording(settings))
        cache = await _opened_cache(stack, settings, declared, engine)
        planner, metrics = store[declared.planner].using(engine), Metrics(resources.registry)
        reader = Reader(
            engine,
            planner.tables,
            cache,
            wording,
            store[declared.reading],
            metrics,
            settings.feed_ttl,
        )
        yield Aggregator(
            settings=settings,
            store=store,
            engine=engine,
            planner=planner,
            embedder=embedder,
            cache=cache,
            queue=HandingOver(store[declared.updates], engine, planner.tables, metrics),
            last_tick=LastTick(engine, declared.tables.last_tick),
            reader=reader,
            metrics=metrics,
        )


async def _opened_cache(
    stack: AsyncExitStack, settings: Settings, declared: Declared, engine: AsyncEngine
) -> FeedCache:
    if settings.mongodb_url is None:
        return SqlFeeds(engine, declared.tables.feeds)
    from ephemera_services.feed.mongo_feeds import open_mongo_feeds

    return await stack.enter_async_context(open_mongo_feeds(settings.mongodb_url.reveal()))
