"""A planner with a database of its own, for tests: what was handed over, and how to look behind it."""

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
from ephemera.patterns.planner import Dataset, Plan, Planner, Run, Task, Tick
from ephemera.wire import open_client

HOUR, DAY = timedelta(hours=1), timedelta(days=1)

PLANS = {
    "free": Plan(novelty=3, every=DAY, active_within=7 * DAY, cooldown=timedelta(0)),
    "calm": Plan(novelty=3, every=DAY, active_within=7 * DAY, cooldown=HOUR),
}


def declare(**options: Any) -> tuple[Catalogue, sa.MetaData, Planner]:
    """A planner whose insights have a text."""
    catalogue, metadata = Catalogue("test-planner"), sa.MetaData()
    options = {"plans": PLANS, "lease": timedelta(seconds=2), **options}
    columns = [sa.Column("text", sa.Text)]
    return catalogue, metadata, Planner(catalogue, metadata, insight_columns=columns, **options)


class World:
    """A planner at work, and everything that it handed over."""

    def __init__(self, declared: Planner, store: Store, engine: AsyncEngine) -> None:
        self.declared = declared
        self.tables = declared.tables
        self.store = store
        self.engine = engine
        self.planner = store[declared].using(engine)
        self.handed: list[Task] = []
        self.built: list[Dataset] = []

    async def enqueue(self, tasks: Sequence[Task]) -> None:
        """The port."""
        self.handed += tasks

    async def tick(self) -> Tick:
        """One tick."""
        return await self.planner.tick(self.enqueue)

    async def build(self, dataset: Dataset) -> Any:
        """Cluster: the ids of all insights in one cluster."""
        self.built.append(dataset)
        return [[row.insight_id for row in await self.planner.insights(dataset)]]

    async def rebuild(self, user: str, **options: Any) -> Run:
        """One run of a worker."""
        return await self.planner.rebuild(user, self.build, **options)

    async def work(self) -> list[Run]:
        """Workers do all that was handed over."""
        tasks, self.handed = self.handed, []
        return [await self.rebuild(task.user_id) for task in tasks]

    async def publish(self, channel: str, count: int = 1) -> None:
        """So many insights."""
        for number in range(count):
            await self.planner.publish(channel, text=f"{channel} {number}")

    async def settled(self, user: str, *channels: str, plan: str = "free") -> None:
        """A user with subscriptions, to whom nothing is new: clustered now, and nowhere marked."""
        await self.planner.enroll(user, plan=plan)
        for channel in channels:
            await self.planner.subscribe(user, channel)
        await self.rebuild(user, even_if_not_due=True)
        await self.tick()
        self.handed = [task for task in self.handed if task.user_id != user]

    def users(self) -> list[str]:
        """Who was handed over, in order."""
        return [task.user_id for task in self.handed]

    async def sql(self, statement: Any) -> Any:
        """Whatever a statement returns."""
        async with self.engine.begin() as sql:
            result = await sql.execute(statement)
            return result.all() if result.returns_rows else None

    async def row(self, user: str) -> Any:
        """A user's row."""
        table = self.tables.user_stats
        return (await self.sql(sa.select(table).where(table.c.user_id == user)))[0]

    async def change(self, user: str, **values: Any) -> None:
        """Change a user's row behind everybody's back, and forget the copies."""
        table = self.tables.user_stats
        await self.sql(sa.update(table).where(table.c.user_id == user).values(**values))
        if self.store.client().up:
            await self.store[self.declared.users].delete(user_id=user)

    async def versions(self, user: str) -> list[list[int]]:
        """The insights of each version of a user's clusters."""
        table = self.tables.clusters
        query = sa.select(table.c.clusters).where(table.c.user_id == user).order_by(table.c.cluster_version)
        return [clusters[0] for (clusters,) in await self.sql(query)]

    async def dirty(self) -> set[str]:
        """The dirty channels."""
        return {name for name, _ in await self.store[self.declared.dirty].range(0, -1)}


def database(postgres: Postgres) -> str:
    """The URL of the planners' database, for SQLAlchemy; each world empties it first."""
    return postgres.database("planner").replace("postgresql://", "postgresql+psycopg://")


@asynccontextmanager
async def world(
    redis: str, sql: str, *, required: bool = True, queue_url: str | None = None, **options: Any
) -> AsyncIterator[World]:
    """A planner on a server, or two, and a database that hold nothing at first."""
    catalogue, metadata, declared = declare(**options)
    engine = create_async_engine(sql)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
            await connection.execute(sa.text(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY"))
        async with open_client(redis, required=required) as admin:
            for node in admin.nodes() if admin.up else ():
                await node.call("FLUSHDB")
        async with connect(redis, catalogue, queue_url=queue_url, required=required) as store:
            yield World(declared, store, engine)
    finally:
        await engine.dispose()


def ids(prefix: str, count: int) -> list[str]:
    """Names."""
    return [f"{prefix}{number}" for number in range(count)]


def each(users: Iterable[str]) -> dict[str, int]:
    """How often each was named."""
    counts: dict[str, int] = {}
    for user in users:
        counts[user] = counts.get(user, 0) + 1
    return counts
