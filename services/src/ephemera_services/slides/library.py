"""The pieces of documents: in SQL with their vectors, and in Qdrant to be searched.

SQL is the truth. Qdrant is filled when a document is ingested, and again by whoever searches and finds it
missing: the embedded one is in the memory of one process, and a server may lose everything, too. Without
Qdrant the first pieces of each document are used, in order.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID, uuid5

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import EmbeddingFailed, VectorStoreUnavailable
from ephemera.patterns.embedders import Embedder
from ephemera.patterns.semantic_cache import Point, ScoredPoint, VectorStore
from ephemera_services.slides.tables import chunks, documents

_AT_ONCE = 64  # texts that are embedded together
_MOST_REMEMBERED = 1_000  # documents that this process knows to be in Qdrant

logger = logging.getLogger(__name__)


class Passage(NamedTuple):
    """A piece of a document."""

    document: str
    """The document's name."""
    text: str


class Library:
    """The documents' pieces of one database."""

    def __init__(self, engine: AsyncEngine, embedder: Embedder, vectors: VectorStore) -> None:
        self._engine = engine
        self._embedder = embedder
        self._vectors = vectors
        self._collection = f"slides-chunks-{embedder.model}"
        self._indexed: set[UUID] = set()

    async def embedded(self, texts: Sequence[str]) -> list[bytes]:
        """The vectors of texts, as SQL keeps them."""
        made: list[bytes] = []
        for start in range(0, len(texts), _AT_ONCE):
            made += map(_packed, await self._embedder.embed(texts[start : start + _AT_ONCE]))
        return made

    async def keep(
        self, sql: AsyncConnection, document_id: UUID, texts: Sequence[str], vectors: Sequence[bytes]
    ) -> int:
        """Write the pieces of a document, in the caller's transaction; how many they are."""
        rows = [
            {
                "id": uuid5(document_id, str(number)),
                "document_id": document_id,
                "number": number,
                "text": text,
                "model": self._embedder.model,
                "vector": vector,
            }
            for number, (text, vector) in enumerate(zip(texts, vectors, strict=True))
        ]
        await sql.execute(delete(chunks).where(chunks.c.document_id == document_id))
        await sql.execute(insert(chunks), rows)
        return len(rows)

    async def index(self, document_id: UUID) -> None:
        """Have a document's vectors in Qdrant, from SQL."""
        if document_id in self._indexed:
            return
        c = chunks.c
        wanted = select(c.id, c.vector).where(c.document_id == document_id, c.model == self._embedder.model)
        async with self._engine.connect() as sql:
            rows = (await sql.execute(wanted)).all()
        name = str(document_id)
        for row in rows:
            point = Point(row.id.hex, "1", name, (name,))  # pieces do not change: one stamp for all
            await self._vectors.upsert(self._collection, point, _unpacked(row.vector))
        if len(self._indexed) >= _MOST_REMEMBERED:
            self._indexed.clear()
        self._indexed.add(document_id)

    async def passages(self, document_ids: Iterable[UUID], query: str, most: int) -> list[Passage]:
        """What the documents say about something, the nearest first."""
        wanted = list(document_ids)
        if not wanted:
            return []
        try:
            found = await self._nearest(wanted, query, most)
        except (VectorStoreUnavailable, EmbeddingFailed) as problem:
            logger.warning("documents are read in order: %s", problem)
            found = []
        return await self._read(found) or await self.beginning(wanted, most)

    async def beginning(self, document_ids: Sequence[UUID], most: int) -> list[Passage]:
        """The first pieces of documents, of each in turn."""
        c = chunks.c
        wanted = (
            select(documents.c.name, c.text)
            .join(documents, documents.c.id == c.document_id)
            .where(c.document_id.in_(document_ids))
            .order_by(c.number, documents.c.name)
            .limit(most)
        )
        async with self._engine.connect() as sql:
            return [Passage(*row) for row in await sql.execute(wanted)]

    async def _nearest(self, document_ids: Sequence[UUID], query: str, most: int) -> list[UUID]:
        [vector] = await self._embedder.embed([query])
        found = []
        for document_id in document_ids:
            near = await self._of_document(document_id, vector, most)
            if not near:  # there is always a nearest piece: Qdrant has lost them
                self._indexed.discard(document_id)
                near = await self._of_document(document_id, vector, most)
            found += near
        found.sort(key=lambda near: near.similarity, reverse=True)
        return [UUID(near.point.id) for near in found[:most]]

    async def _of_document(self, document_id: UUID, vector: Sequence[float], most: int) -> list[ScoredPoint]:
        await self.index(document_id)
        return await self._vectors.search(
            self._collection, vector, str(document_id), min_similarity=-1.0, limit=most
        )

    async def _read(self, chunk_ids: Sequence[UUID]) -> list[Passage]:
        if not chunk_ids:
            return []
        c = chunks.c
        wanted = (
            select(c.id, documents.c.name, c.text)
            .join(documents, documents.c.id == c.document_id)
            .where(c.id.in_(chunk_ids))
        )
        async with self._engine.connect() as sql:
            rows = {row.id: Passage(row.name, row.text) for row in await sql.execute(wanted)}
        return [rows[chunk_id] for chunk_id in chunk_ids if chunk_id in rows]


def _packed(vector: Sequence[float]) -> bytes:
    return array("f", vector).tobytes()


def _unpacked(data: bytes) -> list[float]:
    return array("f", data).tolist()
