"""Vectors in Qdrant: embedded in this process (in memory or in a folder), or a server by its URL.

    Qdrant()                                        # in memory, gone with the process
    Qdrant("/var/lib/slides/vectors")               # a folder; one process at a time may have it open
    Qdrant("http://qdrant:6333", api_key=key)       # a server, shared by all processes

Needs the extra `semantic`. The embedded one is synchronous and knows no threads, so all its work is done by
one thread of its own, in order: the event loop never waits for it, and nothing of it happens twice at once.
It compares with every vector there is; take a server above a few thousand.
A server that does not answer within `timeout` is `VectorStoreUnavailable`, as is any other failure.
Collections are created when they are first used, for cosine similarity. The key is in no repr and no error.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from ephemera.errors import VectorStoreUnavailable
from ephemera.keyspace import check_durations
from ephemera.patterns.embedders._embedder import without_secrets
from ephemera.patterns.semantic_cache._vectors import Near, Page, Point

_FEW = 64


class Qdrant:
    """A Qdrant by `:memory:`, a folder or a URL; opened when first used, or by `async with`."""

    def __init__(
        self,
        location: str = ":memory:",
        *,
        api_key: str | None = None,
        timeout: timedelta = timedelta(seconds=2),
    ) -> None:
        check_durations("Qdrant", timeout=timeout)
        self._location = location
        self.shared = location.startswith(("http://", "https://"))
        self.location = without_secrets(location) if self.shared else location
        """Where it is, without a password."""
        self._api_key = api_key
        self._timeout = timeout.total_seconds()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="qdrant")
        self._opening: asyncio.Future[Any] | None = None
        self._ready: set[str] = set()
        self._models: Any = None

    async def nearest(
        self, collection: str, vector: Sequence[float], scope: str, *, at_least: float, most: int
    ) -> list[Near]:
        """The nearest points of a scope, nearest first, none less similar than `at_least`."""
        await self._collection(collection, len(vector))
        if not self.shared:
            # A filter makes the embedded one read every payload, one by one: 27 ms in place of 2 for a
            # thousand vectors. Few are near enough in all scopes together; only if not, it must filter.
            near = await self._query(collection, vector, None, at_least, _FEW)
            if len(near) < _FEW:
                return [each for each in near if each.point.scope == scope][:most]
        return await self._query(collection, vector, self._where(scope=scope), at_least, most)

    async def keep(self, collection: str, point: Point, vector: Sequence[float]) -> None:
        """Write a point, in place of any with its id."""
        await self._collection(collection, len(vector))
        payload = {"stamp": point.stamp, "scope": point.scope, "sources": list(point.sources)}
        written = self._models.PointStruct(id=str(UUID(point.id)), vector=list(vector), payload=payload)
        await self._do("upsert", collection_name=collection, points=[written])

    async def get(self, collection: str, point_id: str) -> Point | None:
        """One point."""
        found = await self._do("retrieve", collection_name=collection, ids=[str(UUID(point_id))])
        return _point(found[0]) if found else None

    async def remove(self, collection: str, points: Iterable[Point]) -> None:
        """Remove those points that still have their stamps."""
        await self._open()
        models = self._models
        each = [
            models.Filter(
                must=[
                    models.HasIdCondition(has_id=[str(UUID(point.id))]),
                    models.FieldCondition(key="stamp", match=models.MatchValue(value=point.stamp)),
                ]
            )
            for point in points
        ]
        if each:
            selector = models.FilterSelector(filter=models.Filter(should=each))
            await self._do("delete", collection_name=collection, points_selector=selector)

    async def page(
        self, collection: str, begin: str | None, *, source: str | None = None, size: int = 128
    ) -> Page:
        """Points in the order of their ids; with `source`, those that rest on it."""
        await self._open()
        where = None if source is None else self._where(sources=source)
        records, following = await self._do(
            "scroll", collection_name=collection, scroll_filter=where, limit=size, offset=begin
        )
        return Page([_point(each) for each in records], None if following is None else str(following))

    async def collections(self, prefix: str) -> list[str]:
        """The collections whose names begin so."""
        found = await self._do("get_collections")
        return sorted(each.name for each in found.collections if each.name.startswith(prefix))

    async def aclose(self) -> None:
        """Close it; what is in memory is gone."""
        opening, self._opening = self._opening, None
        if opening is not None:
            client = await opening
            if self.shared:
                await client.close()
            else:
                await asyncio.get_running_loop().run_in_executor(self._thread, client.close)
        self._ready.clear()
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Qdrant({self.location!r})"

    async def _collection(self, name: str, size: int) -> None:
        """Have the collection, made by us or by another at the same time."""
        await self._open()
        if name in self._ready:
            return
        if not await self._do("collection_exists", collection_name=name):
            params = self._models.VectorParams(size=size, distance=self._models.Distance.COSINE)
            try:
                await self._do("create_collection", collection_name=name, vectors_config=params)
            except VectorStoreUnavailable:
                if not await self._do("collection_exists", collection_name=name):
                    raise
        if self.shared:  # so that a filter does not read every point; the embedded one has no indexes
            for field in ("scope", "sources"):
                await self._do(
                    "create_payload_index", collection_name=name, field_name=field, field_schema="keyword"
                )
        self._ready.add(name)

    async def _query(
        self, collection: str, vector: Sequence[float], where: Any, at_least: float, most: int
    ) -> list[Near]:
        found = await self._do(
            "query_points",
            collection_name=collection,
            query=list(vector),
            query_filter=where,
            score_threshold=at_least,
            limit=most,
        )
        return [Near(_point(each), min(each.score, 1.0)) for each in found.points]

    def _where(self, **fields: str) -> Any:
        models = self._models
        return models.Filter(
            must=[
                models.FieldCondition(key=name, match=models.MatchValue(value=value))
                for name, value in fields.items()
            ]
        )

    async def _do(self, operation: str, **arguments: Any) -> Any:
        client = await self._open()
        method = getattr(client, operation)
        try:
            if self.shared:
                async with asyncio.timeout(self._timeout):
                    return await method(**arguments)
            return await self._in_thread(partial(method, **arguments))
        except Exception as problem:
            self._ready.discard(arguments.get("collection_name", ""))  # it may be gone
            raise VectorStoreUnavailable(self.location, f"{operation} failed: {_said(problem)}") from problem

    async def _open(self) -> Any:
        """The client, made in the thread: importing it alone takes a second."""
        try:
            if self._opening is None:
                self._opening = self._in_thread(self._make)
            return await asyncio.shield(self._opening)
        except Exception as problem:
            self._opening = None
            if isinstance(problem, VectorStoreUnavailable):
                raise
            raise VectorStoreUnavailable(self.location, f"cannot be opened: {_said(problem)}") from problem

    def _make(self) -> Any:
        try:
            package: Any = import_module("qdrant_client")
            self._models = import_module("qdrant_client.models")
        except ImportError:
            advice = "qdrant-client is missing: pip install 'ephemera-data[semantic]'"
            raise VectorStoreUnavailable(self.location, advice) from None
        if self.shared:
            return package.AsyncQdrantClient(
                url=self._location,
                api_key=self._api_key,
                timeout=math.ceil(self._timeout),
                check_compatibility=False,  # it would ask the server here, and wait
            )
        if self.location == ":memory:":
            return package.QdrantClient(":memory:")
        return package.QdrantClient(path=self.location)

    def _in_thread(self, work: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)


def _point(stored: Any) -> Point:
    payload = stored.payload or {}
    return Point(
        UUID(str(stored.id)).hex,
        payload.get("stamp", ""),
        payload.get("scope", ""),
        tuple(payload.get("sources", ())),
    )


def _said(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
