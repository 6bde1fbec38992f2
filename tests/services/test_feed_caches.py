"""One contract for whatever keeps built feeds: PostgreSQL, and MongoDB where MONGODB_URL names one."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import MetaData, text

from ephemera.embedded import Postgres
from ephemera_services.feed.feeds import CacheUnavailable, Feed, FeedCache, Item, SqlFeeds
from ephemera_services.feed.mongo_feeds import open_mongo_feeds
from ephemera_services.feed.tables import FeedTables
from ephemera_services.runtime import open_engine

DAY = timedelta(days=1)


@asynccontextmanager
async def _in_sql(postgres: Postgres) -> AsyncIterator[FeedCache]:
    metadata = MetaData(schema="feed")
    tables = FeedTables(metadata)
    async with open_engine(postgres.database("feed_caches"), metadata) as engine:
        yield SqlFeeds(engine, tables.feeds)


@pytest.fixture(params=["sql", "mongodb"])
async def cache(request: pytest.FixtureRequest, postgres: Postgres) -> AsyncIterator[FeedCache]:
    """A cache of each kind."""
    if request.param == "sql":
        async with _in_sql(postgres) as made:
            yield made
        return
    url = os.environ.get("MONGODB_URL")
    if not url:
        pytest.skip("MONGODB_URL names no MongoDB")
    async with open_mongo_feeds(url) as kept:
        yield kept


@pytest.fixture
def user() -> str:
    """A user of one test."""
    return f"user-{uuid4().hex}"


def _feed(user: str, version: int, title: str = "Ülkü and 東京") -> Feed:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    item = Item(
        title=title, summary="$set. a.b", size=3, channel_ids=["a", "b"], insight_ids=[2**40, 1], newest=at
    )
    return Feed(
        user_id=user,
        cluster_version=version,
        built_at=at,
        summarized_by="extractive",
        items=[item],
        unclustered=2,
    )


async def test_it_gives_what_was_put(cache: FeedCache, user: str) -> None:
    """A feed is read back unchanged by its user and version alone."""
    assert await cache.get(user, 3) is None
    await cache.put(_feed(user, 3), DAY)
    assert await cache.get(user, 3) == _feed(user, 3)
    assert await cache.get(user, 2) is None
    assert await cache.get(user, 4) is None
    assert await cache.get(f"{user}x", 3) is None


async def test_the_last_one_of_a_version_holds(cache: FeedCache, user: str) -> None:
    """A feed that is worded again takes the place of the first."""
    await cache.put(_feed(user, 1, "stopgap"), DAY)
    await cache.put(_feed(user, 1, "better"), DAY)
    kept = await cache.get(user, 1)
    assert kept is not None
    assert kept.items[0].title == "better"


async def test_it_forgets_older_versions(cache: FeedCache, user: str) -> None:
    """Versions before the new one go, the new one and other users' stay."""
    for version in (1, 2, 3):
        await cache.put(_feed(user, version), DAY)
    await cache.put(_feed(f"{user}x", 1), DAY)
    await cache.delete_older(user, before=3)
    assert [await cache.get(user, version) is not None for version in (1, 2, 3)] == [False, False, True]
    assert await cache.get(f"{user}x", 1) is not None


async def test_a_feed_has_an_end(cache: FeedCache, user: str) -> None:
    """An expired feed is not served, even before it is deleted."""
    await cache.put(_feed(user, 1), timedelta(microseconds=1))
    assert await cache.get(user, 1) is None
    await cache.sweep()
    assert await cache.get(user, 1) is None
    await cache.put(_feed(user, 1), DAY)
    assert await cache.get(user, 1) is not None


async def test_sql_removes_what_is_over(postgres: Postgres, user: str) -> None:
    """A sweep deletes the rows of feeds whose time is over, and no others."""
    async with _in_sql(postgres) as cache:
        await cache.put(_feed(user, 1), timedelta(microseconds=1))
        await cache.put(_feed(user, 2), DAY)
        await cache.sweep()
        async with cache._engine.connect() as sql:  # type: ignore[attr-defined]
            rows = await sql.execute(
                text("SELECT cluster_version FROM feed.feeds WHERE user_id = :user"), {"user": user}
            )
            assert rows.scalars().all() == [2]


async def test_what_another_release_wrote_is_a_miss(postgres: Postgres, user: str) -> None:
    """A payload that cannot be read is as good as none."""
    async with _in_sql(postgres) as cache:
        await cache.put(_feed(user, 1), DAY)
        async with cache._engine.begin() as sql:  # type: ignore[attr-defined]
            await sql.execute(
                text("""UPDATE feed.feeds SET payload = '{"items": 7}' WHERE user_id = :user"""),
                {"user": user},
            )
        assert await cache.get(user, 1) is None


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_mongodb_unavailable(user: str) -> None:
    """Without its server every call says so within seconds, and never with the URL's password."""
    for said in await _said_by_a_missing_mongodb(user):
        assert said.startswith("MongoDB is unavailable")
        assert "hushhush" not in said
    gc.collect()  # the driver leaves sockets that were refused to the collector, which complains


async def _said_by_a_missing_mongodb(user: str) -> list[str]:
    said = []
    async with open_mongo_feeds("mongodb://someone:hushhush@127.0.0.1:1/feed") as cache:
        for call in (cache.get(user, 1), cache.put(_feed(user, 1), DAY), cache.delete_older(user, before=1)):
            with pytest.raises(CacheUnavailable) as caught:
                await call
            said.append(str(caught.value))
    return said
