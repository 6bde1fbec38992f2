"""Feed inside a test: its parts on real servers; the test says when the planner ticks and a worker runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from ephemera.patterns.planner import RebuildRun, Tick
from ephemera_services.feed import Settings
from ephemera_services.feed.builder import Builder
from ephemera_services.feed.clusterer import Clustered, ClusterPool
from ephemera_services.feed.keys import FeedKeys
from ephemera_services.feed.planner import PlannerLoop
from ephemera_services.feed.service import Aggregator, open_aggregator
from ephemera_services.runtime import Secret, ServiceDefinition, open_resources
from tests.services.feed_users import texts


class World:
    """The parts of a service, and what they handed over."""

    def __init__(self, aggregator: Aggregator, keys: FeedKeys, pool: Any) -> None:
        self.aggregator = aggregator
        self.declared = keys
        self.planner = aggregator.planner
        self.tables = aggregator.planner.tables
        self.engine = aggregator.engine
        self.clusterizer = pool
        self.planning = PlannerLoop(aggregator)
        self.builder = Builder(aggregator, pool)
        self.exits = AsyncExitStack()

    async def tick(self) -> Tick:
        """One tick of the planner, by itself or after others."""
        await self.planning.tick()
        tick = self.planner.status.last_tick
        assert tick is not None
        return tick

    async def handed(self) -> set[str]:
        """Who was handed over and is not done with."""
        users = self.tables.user_stats.c
        query = sa.select(users.user_id).where(users.enqueued_until > sa.func.clock_timestamp())
        return {row[0] for row in await self.sql(query)}

    async def reason(self, user: str) -> str | None:
        """Why a user is in the stream, by its last entry about them."""
        key = self.declared.updates.keys({})[0]
        entries = await self.aggregator.store.client("queue").call("XRANGE", key, "-", "+")
        events = [msgspec.json.decode(fields[fields.index(b"event") + 1]) for _, fields in entries]
        return next((str(each["reason"]) for each in reversed(events) if each["user_id"] == user), None)

    async def rebuild(self, user: str) -> RebuildRun:
        """A worker's run."""
        return await self.builder.rebuild(user)

    async def publish(self, channel: str, count: int, subject: str = "space") -> None:
        """This many insights of a channel."""
        for text in texts(subject, count):
            await self.aggregator.publish(channel, text)

    async def settled(self, user: str, channel: str, plan: str) -> None:
        """A user with a subscription, clustered now, and handed over long ago."""
        await self.aggregator.subscribe(user, channel, plan)
        await self.tick()
        await self.rebuild(user)
        await self.age(user, last_enqueued_at="60 d")

    async def age(self, user: str, **moments: str) -> None:
        """Set moments of a user's row back, past everyone; their entries in Redis are dropped."""
        table = self.tables.user_stats
        back = {name: sa.text(f"now() - interval '{ago}'") for name, ago in moments.items()}
        await self.sql(sa.update(table).where(table.c.user_id == user).values(**back))
        if self.aggregator.store.client().up:
            await self.aggregator.store[self.declared.planner.keys.users].delete(user_id=user)

    async def sql(self, statement: Any) -> Any:
        """Whatever a statement gives."""
        async with self.engine.begin() as sql:
            result = await sql.execute(statement)
            return result.all() if result.returns_rows else None

    async def row(self, user: str) -> Any:
        """A user's row."""
        table = self.tables.user_stats
        return (await self.sql(sa.select(table).where(table.c.user_id == user)))[0]


class Interrupted:
    """The real pool, with something that happens while it clusters."""

    def __init__(self, pool: ClusterPool, meanwhile: Any) -> None:
        self._clusterizer = pool
        self._meanwhile = meanwhile

    async def cluster(self, vectors: list[bytes]) -> Clustered:
        """Cluster, while something happens."""
        found = await self._clusterizer.cluster(vectors)
        await self._meanwhile()
        return found


@cache
def shared_pool(smallest_cluster: int) -> ClusterPool:
    """The processes that cluster for all tests of this process: each would import scikit-learn again."""
    return ClusterPool(1, smallest_cluster)


@asynccontextmanager
async def feed_fixtures(places: Mapping[str, str], **changes: Any) -> AsyncIterator[World]:
    """A world on the servers of a test file, with these settings."""
    named: dict[str, Any] = {
        "url": Secret(places["EPHEMERA_URL"]),
        "database_url": Secret(places["EPHEMERA_DATABASE_URL"]),
    }
    settings = Settings(**named, **changes)
    keys = FeedKeys(settings)
    service = ServiceDefinition(
        "feed", "", keys.catalogue, keys.metadata, store_resources=keys.store_resources
    )
    async with (
        open_resources(settings, service) as resources,
        open_aggregator(settings, keys, resources) as aggregator,
    ):
        world = World(aggregator, keys, shared_pool(settings.smallest_cluster))
        async with world.exits:
            yield world
