"""Feeds as MongoDB documents: `EPHEMERA_FEED_MONGODB_URL`. A TTL index expires them.

The collection is `feeds`, in the database that the URL names, or `feed`. Times are by this process's clock.
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

from ephemera_services.feed.feeds import CacheUnavailable, Feed, decode_feed

_TIMEOUT = 2_000  # milliseconds to find a server, and to answer


class MongoFeeds:
    """Feeds in one collection."""

    def __init__(self, collection: AsyncCollection[dict[str, Any]]) -> None:
        self._collection = collection
        self._indexed = False

    async def get(self, user_id: str, version: int) -> Feed | None:
        """The stored feed of a version, or None."""
        query = {"_id": _id(user_id, version), "expires_at": {"$gt": datetime.now(UTC)}}
        with _translate_errors():
            found = await self._collection.find_one(query)
        return None if found is None else decode_feed(found["feed_payload"])

    async def put(self, feed: Feed, ttl: timedelta) -> None:
        """Store a feed."""
        document = {
            "user_id": feed.user_id,
            "cluster_version": feed.cluster_version,
            "built_at": feed.built_at,
            "expires_at": datetime.now(UTC) + ttl,
            "feed_payload": msgspec.to_builtins(feed),
        }
        with _translate_errors():
            await self._ensure_indexes()
            name = _id(feed.user_id, feed.cluster_version)
            await self._collection.replace_one({"_id": name}, document, upsert=True)

    async def delete_older(self, user_id: str, *, before: int) -> None:
        """Delete older versions."""
        with _translate_errors():
            await self._collection.delete_many({"user_id": user_id, "cluster_version": {"$lt": before}})

    async def sweep(self) -> None:
        """Do nothing: MongoDB expires documents by itself."""

    async def _ensure_indexes(self) -> None:
        if not self._indexed:
            await self._collection.create_index("expires_at", expireAfterSeconds=0)
            await self._collection.create_index(["user_id", "cluster_version"])
            self._indexed = True


@asynccontextmanager
async def open_mongo_feeds(url: str) -> AsyncIterator[MongoFeeds]:
    """Open the feeds of a server, which may still be down."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        url, tz_aware=True, serverSelectionTimeoutMS=_TIMEOUT, timeoutMS=_TIMEOUT
    )
    try:
        yield MongoFeeds(client.get_default_database("feed")["feeds"])
    finally:
        await client.close()


def _id(user_id: str, version: int) -> dict[str, Any]:
    return {"user_id": user_id, "cluster_version": version}


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except PyMongoError as problem:
        raise CacheUnavailable(f"MongoDB is unavailable: {type(problem).__name__}") from problem
