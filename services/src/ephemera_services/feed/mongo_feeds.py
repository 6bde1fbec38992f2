"""Feeds as documents of MongoDB: `EPHEMERA_FEED_MONGODB_URL`. An index of MongoDB's own ends them.

The collection is `feeds`, in the database that the URL names, or `feed`. Moments are by this process's clock,
as MongoDB compares them to documents' own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import PyMongoError

from ephemera_services.feed.feeds import CacheAway, Feed, read

_PATIENCE = 2_000  # milliseconds for a server to be found, or to answer


class MongoFeeds:
    """Feeds in one collection."""

    def __init__(self, collection: AsyncCollection[dict[str, Any]]) -> None:
        self._collection = collection
        self._indexed = False

    async def get(self, user_id: str, version: int) -> Feed | None:
        """The feed of a version, while it is kept."""
        kept = {"_id": _id(user_id, version), "expires_at": {"$gt": datetime.now(UTC)}}
        with _away():
            found = await self._collection.find_one(kept)
        return None if found is None else read(found["feed_payload"])

    async def put(self, feed: Feed, ttl: timedelta) -> None:
        """Keep a feed."""
        document = {
            "user_id": feed.user_id,
            "cluster_version": feed.cluster_version,
            "built_at": feed.built_at,
            "expires_at": datetime.now(UTC) + ttl,
            "feed_payload": msgspec.to_builtins(feed),
        }
        with _away():
            await self._have_indexes()
            name = _id(feed.user_id, feed.cluster_version)
            await self._collection.replace_one({"_id": name}, document, upsert=True)

    async def forget(self, user_id: str, *, before: int) -> None:
        """Remove older versions."""
        with _away():
            await self._collection.delete_many({"user_id": user_id, "cluster_version": {"$lt": before}})

    async def sweep(self) -> None:
        """Nothing: MongoDB does it."""

    async def _have_indexes(self) -> None:
        if not self._indexed:
            await self._collection.create_index("expires_at", expireAfterSeconds=0)
            await self._collection.create_index(["user_id", "cluster_version"])
            self._indexed = True


@asynccontextmanager
async def open_mongo_feeds(url: str) -> AsyncIterator[MongoFeeds]:
    """The feeds of a server, which need not be there yet."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        url, tz_aware=True, serverSelectionTimeoutMS=_PATIENCE, timeoutMS=_PATIENCE
    )
    try:
        yield MongoFeeds(client.get_default_database("feed")["feeds"])
    finally:
        await client.close()


def _id(user_id: str, version: int) -> dict[str, Any]:
    return {"user_id": user_id, "cluster_version": version}


@contextmanager
def _away() -> Iterator[None]:
    try:
        yield
    except PyMongoError as problem:
        raise CacheAway(f"MongoDB does not keep feeds: {type(problem).__name__}") from problem
