"""Vector stores: the protocol that a semantic cache needs, and Qdrant.

    Qdrant()                                        # in memory, gone with the process
    Qdrant("/var/lib/slides/vectors")               # a folder; one process at a time may have it open
    Qdrant("http://qdrant:6333", api_key=key)       # a server, shared by all processes

A point is the vector of one entry: its id is the entry's, its `scope` the digest that a neighbour must have,
its `sources` what the answer is based on. Its `stamp` is new with each write, and a point is deleted only if
it still has the stamp that was read, so cleaning up never deletes what another process has just written. No
answer is stored here: a point without its entry misleads no one.

Qdrant needs the extra `semantic`. The embedded one is synchronous and not thread-safe, so one thread of its
own does all its work, in order: the event loop never waits for it. It compares with every vector there is;
use a server above a few thousand. A server that does not answer within `timeout` is `VectorStoreUnavailable`,
as is any other failure. Collections are created when they are first used, for cosine similarity. The API key
is in no repr and no error.
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
from typing import Any, NamedTuple, Protocol, Self
from uuid import UUID

from ephemera.errors import VectorStoreUnavailable
from ephemera.keyspace import check_durations
from ephemera.patterns._urls import redacted_url

_UNFILTERED = 64  # points of an embedded search without a filter


class Point(NamedTuple):
    """One vector as it is stored, without its numbers."""

    id: str  # 32 hexadecimal digits
    stamp: str
    scope: str = ""
    sources: tuple[str, ...] = ()


class ScoredPoint(NamedTuple):
    """A point, and the cosine similarity of its vector to the one searched for."""

    point: Point
    similarity: float


class PointPage(NamedTuple):
    """Some points, and the offset of the next ones; None when these are the last."""

    points: list[Point]
    next_offset: str | None


class VectorStore(Protocol):
    """A vector database; each method raises `VectorStoreUnavailable` when it cannot do its work."""

    shared: bool
    """Whether other processes see the same vectors."""

    async def search(
        self, collection: str, vector: Sequence[float], scope: str, *, min_similarity: float, limit: int
    ) -> list[ScoredPoint]:
        """Return the nearest points of a scope, nearest first.

        Args:
            collection: The collection's name.
            vector: What they are near to.
            scope: The digest of the scope that they must have.
            min_similarity: The least cosine, up to 1.
            limit: How many at most.

        """

    async def upsert(self, collection: str, point: Point, vector: Sequence[float]) -> None:
        """Write a point, in place of any with its id."""

    async def get(self, collection: str, point_id: str) -> Point | None:
        """Return one point."""

    async def delete(self, collection: str, points: Iterable[Point]) -> None:
        """Delete those points that still have their stamps."""

    async def scroll(
        self, collection: str, offset: str | None, *, source: str | None = None, size: int = 128
    ) -> PointPage:
        """Return points in the order of their ids.

        Args:
            collection: The collection's name.
            offset: The id to begin at; None: the first.
            source: Only points that are based on it; by default all.
            size: How many at most.

        """

    async def collections(self, prefix: str) -> list[str]:
        """Return the collections whose names start with a prefix."""

    async def aclose(self) -> None:
        """Close it."""


class Qdrant:
    """A Qdrant by `:memory:`, a folder or a URL; opened when first used, or by `async with`.

    Args:
        location: `:memory:`, a folder, or a URL.
        api_key: Sent to a server.
        ca: A file with the authority that signed the server's certificate; by default the public ones.
        timeout: How long a server may take for a request; by default 2 seconds.

    """

    def __init__(
        self,
        location: str = ":memory:",
        *,
        api_key: str | None = None,
        ca: str | None = None,
        timeout: timedelta = timedelta(seconds=2),
    ) -> None:
        check_durations("Qdrant", timeout=timeout)
        self._location = location
        self.shared = location.startswith(("http://", "https://"))
        self.location = redacted_url(location) if self.shared else location
        """Where it is, without a password."""
        self._api_key = api_key
        self._verify: dict[str, Any] = {} if ca is None else {"verify": ca}
        self._timeout = timeout.total_seconds()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="qdrant")
        self._opening: asyncio.Future[Any] | None = None
        self._ready: set[str] = set()
        self._models: Any = None

    async def search(
        self, collection: str, vector: Sequence[float], scope: str, *, min_similarity: float, limit: int
    ) -> list[ScoredPoint]:
        """Return the nearest points of a scope, nearest first.

        Args:
            collection: The collection's name.
            vector: What they are near to.
            scope: The digest of the scope that they must have.
            min_similarity: The least cosine, up to 1.
            limit: How many at most.

        """
        await self._collection(collection, len(vector))
        if not self.shared:
            # A filter makes the embedded one read every payload, one by one: 27 ms instead of 2 for a
            # thousand vectors. Few are near enough in all scopes together; only if not, it must filter.
            found = await self._query(collection, vector, None, min_similarity, _UNFILTERED)
            if len(found) < _UNFILTERED:
                return [each for each in found if each.point.scope == scope][:limit]
        return await self._query(collection, vector, self._filter(scope=scope), min_similarity, limit)

    async def upsert(self, collection: str, point: Point, vector: Sequence[float]) -> None:
        """Write a point, in place of any with its id."""
        await self._collection(collection, len(vector))
        payload = {"stamp": point.stamp, "scope": point.scope, "sources": list(point.sources)}
        written = self._models.PointStruct(id=str(UUID(point.id)), vector=list(vector), payload=payload)
        await self._do("upsert", collection_name=collection, points=[written])

    async def get(self, collection: str, point_id: str) -> Point | None:
        """Return one point."""
        found = await self._do("retrieve", collection_name=collection, ids=[str(UUID(point_id))])
        return _point(found[0]) if found else None

    async def delete(self, collection: str, points: Iterable[Point]) -> None:
        """Delete those points that still have their stamps."""
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

    async def scroll(
        self, collection: str, offset: str | None, *, source: str | None = None, size: int = 128
    ) -> PointPage:
        """Return points in the order of their ids.

        Args:
            collection: The collection's name.
            offset: The id to begin at; None: the first.
            source: Only points that are based on it; by default all.
            size: How many at most.

        """
        await self._open()
        where = None if source is None else self._filter(sources=source)
        records, following = await self._do(
            "scroll", collection_name=collection, scroll_filter=where, limit=size, offset=offset
        )
        return PointPage([_point(each) for each in records], None if following is None else str(following))

    async def collections(self, prefix: str) -> list[str]:
        """Return the collections whose names start with a prefix."""
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
        """Create the collection unless it exists; another process may do so at the same time."""
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
        self, collection: str, vector: Sequence[float], where: Any, min_similarity: float, limit: int
    ) -> list[ScoredPoint]:
        found = await self._do(
            "query_points",
            collection_name=collection,
            query=list(vector),
            query_filter=where,
            score_threshold=min_similarity,
            limit=limit,
        )
        return [ScoredPoint(_point(each), min(each.score, 1.0)) for each in found.points]

    def _filter(self, **fields: str) -> Any:
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
            raise VectorStoreUnavailable(
                self.location, f"{operation} failed: {_describe(problem)}"
            ) from problem

    async def _open(self) -> Any:
        """Return the client, made in the thread: importing it alone takes a second."""
        try:
            if self._opening is None:
                self._opening = self._in_thread(self._make)
            return await asyncio.shield(self._opening)
        except Exception as problem:
            self._opening = None
            if isinstance(problem, VectorStoreUnavailable):
                raise
            raise VectorStoreUnavailable(
                self.location, f"cannot be opened: {_describe(problem)}"
            ) from problem

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
                check_compatibility=False,  # it would call the server here, and block
                **self._verify,
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


def _describe(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
