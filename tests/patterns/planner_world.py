"""A planner with its own database, for tests: what was enqueued, and access to its rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ephemera import Catalogue
from ephemera.embedded import Postgres
from ephemera.keyspace import Store, connect
from ephemera.patterns.planner import Dataset, Plan, Planner, PlannerTiming, RebuildRun, Task, Tick
from ephemera.sql import migrate
from ephemera.wire import open_client
from tests.resources import with_resources

HOUR, DAY = timedelta(hours=1), timedelta(days=1)

PLANS = {
    "free": Plan(novelty=3, every=DAY, active_within=7 * DAY, cooldown=timedelta(0)),
    "calm": Plan(novelty=3, every=DAY, active_within=7 * DAY, cooldown=HOUR),
}


def declare(**options: Any) -> tuple[Catalogue, sa.MetaData, Planner]:
    """Declare a planner whose insights have a text."""
    catalogue, metadata = Catalogue("test-planner"), sa.MetaData()
    options = {"plans": PLANS, "timing": PlannerTiming(lease=timedelta(seconds=2)), **options}
    columns = [sa.Column("text", sa.Text)]
    return catalogue, metadata, Planner(catalogue, metadata, insight_columns=columns, **options)


class World:
    """A running planner, and everything that it enqueued."""

    def __init__(self, declared: Planner, store: Store, engine: AsyncEngine) -> None:
        self.declared = declared
        self.tables = declared.tables
        self.store = store
        self.engine = engine
        self.planner = with_resources(store, {declared: engine})[declared]
        self.tasks: list[Task] = []
        self.built: list[Dataset] = []

    async def enqueue(self, tasks: Sequence[Task]) -> None:
        """Collect the tasks of a tick."""
        self.tasks += tasks

    async def tick(self) -> Tick:
        """Run one tick."""
        return await self.planner.tick(self.enqueue)

    async def build(self, dataset: Dataset) -> Any:
        """Put the ids of all insights into one cluster."""
        self.built.append(dataset)
        return [[row.insight_id for row in await self.planner.insights(dataset)]]

    async def rebuild(self, user: str, **options: Any) -> RebuildRun:
        """Do one run of a worker."""
        return await self.planner.rebuild(user, self.build, **options)

    async def work(self) -> list[RebuildRun]:
        """Do a run for every enqueued task."""
        tasks, self.tasks = self.tasks, []
        return [await self.rebuild(task.user_id) for task in tasks]

    async def publish(self, channel: str, count: int = 1) -> None:
        """Publish insights."""
        for number in range(count):
            await self.planner.publish(channel, text=f"{channel} {number}")

    async def add_user(self, user: str, *channels: str, plan: str = "free") -> None:
        """Add a user with subscriptions and no novelty: clustered now, and not enqueued."""
        await self.planner.enroll(user, plan=plan)
        for channel in channels:
            await self.planner.subscribe(user, channel)
        await self.rebuild(user, force=True)
        await self.tick()
        self.tasks = [task for task in self.tasks if task.user_id != user]

    def users(self) -> list[str]:
        """Return the enqueued users, in order."""
        return [task.user_id for task in self.tasks]

    async def sql(self, statement: Any) -> Any:
        """Execute a statement and return its rows."""
        async with self.engine.begin() as sql:
            result = await sql.execute(statement)
            return result.all() if result.returns_rows else None

    async def row(self, user: str) -> Any:
        """Return a user's row."""
        table = self.tables.user_stats
        return (await self.sql(sa.select(table).where(table.c.user_id == user)))[0]

    async def change(self, user: str, **values: Any) -> None:
        """Change a user's row directly, and evict the cached one."""
        table = self.tables.user_stats
        await self.sql(sa.update(table).where(table.c.user_id == user).values(**values))
        if self.store.client().up:
            await self.store[self.declared.keys.users].delete(user_id=user)

    async def versions(self, user: str) -> list[list[int]]:
        """Return the insights of each version of a user's clusters."""
        table = self.tables.clusters
        query = sa.select(table.c.clusters).where(table.c.user_id == user).order_by(table.c.cluster_version)
        return [clusters[0] for (clusters,) in await self.sql(query)]

    async def dirty(self) -> set[str]:
        """Return the dirty channels."""
        return {name for name, _ in await self.store[self.declared.keys.dirty].range(0, -1)}


def database(postgres: Postgres) -> str:
    """Return the SQLAlchemy URL of the planners' database; each world empties it first."""
    return postgres.database("planner").replace("postgresql://", "postgresql+psycopg://")


@asynccontextmanager
async def world(
    redis: str, sql: str, *, required: bool = True, queue_url: str | None = None, **options: Any
) -> AsyncIterator[World]:
    """Open a planner on one or two servers and a database, all empty."""
    catalogue, metadata, declared = declare(**options)
    engine = create_async_engine(sql)
    try:
        await migrate(engine, declared)
        async with engine.begin() as connection:
            await connection.execute(sa.text(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY"))
        async with open_client(redis, required=required) as admin:
            for node in admin.nodes() if admin.up else ():
                await node.call("FLUSHDB")
        async with connect(redis, catalogue, queue_url=queue_url, required=required) as store:
            yield World(declared, store, engine)
    finally:
        await engine.dispose()


def ids(prefix: str, count: int) -> list[str]:
    """Return numbered names."""
    return [f"{prefix}{number}" for number in range(count)]


def each(users: Iterable[str]) -> dict[str, int]:
    """Count the occurrences of each user."""
    counts: dict[str, int] = {}
    for user in users:
        counts[user] = counts.get(user, 0) + 1
    return counts
