"""The chunks of documents: in SQL with their embeddings, and in Qdrant for search.

SQL is the source of truth. Qdrant is filled when a document is ingested, and again by a search that finds it
missing: the embedded one is in the memory of one process, and a server can lose its data as well. Without
Qdrant the first chunks of each document are used, in order.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import EmbeddingFailed, VectorStoreUnavailable
from ephemera.patterns.embedders import Embedder
from ephemera.patterns.semantic_cache import Point, ScoredPoint, VectorStore
from ephemera_services.slides.deck_plan import Section, TitledTable
from ephemera_services.slides.document_text import Chunk
from ephemera_services.slides.tables import chunks, documents
from ephemera_services.slides.text_structure import table_title

_BATCH = 64  # texts per call of the embedder
_MAX_INDEXED = 1_000  # documents that this process knows to be in Qdrant

_MAX_SECTIONS = 400_000  # characters of documents that a deck is planned from

logger = logging.getLogger(__name__)


class DocumentPassage(NamedTuple):
    """A chunk of a document."""

    document: str
    """The document's name."""
    text: str


class DocumentSources:
    """The documents of one presentation."""

    def __init__(self, library: Library, document_ids: Sequence[UUID]) -> None:
        self._library = library
        self._document_ids = document_ids

    async def passages(self, query: str, limit: int) -> list[DocumentPassage]:
        """The passages that match a query, nearest first."""
        return await self._library.passages(self._document_ids, query, limit)

    async def sections(self) -> list[Section]:
        """All sections, in order."""
        return await self._library.sections(self._document_ids)


class Library:
    """The chunks of all documents."""

    def __init__(self, engine: AsyncEngine, embedder: Embedder, vectors: VectorStore) -> None:
        self._engine = engine
        self._embedder = embedder
        self._vectors = vectors
        self._collection = f"slides-chunks-{embedder.model}"
        self._indexed: set[UUID] = set()

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embed texts; packed vectors for SQL."""
        vectors: list[bytes] = []
        for start in range(0, len(texts), _BATCH):
            vectors += map(_pack, await self._embedder.embed(texts[start : start + _BATCH]))
        return vectors

    async def store(
        self, sql: AsyncConnection, document_id: UUID, parts: Sequence[Chunk], vectors: Sequence[bytes]
    ) -> int:
        """Write the chunks of a document in the caller's transaction; their number."""
        rows = [
            {
                "id": uuid5(document_id, str(number)),
                "document_id": document_id,
                "number": number,
                **part,
                "model": self._embedder.model,
                "vector": vector,
            }
            for number, (part, vector) in enumerate(zip(parts, vectors, strict=True))
        ]
        await sql.execute(delete(chunks).where(chunks.c.document_id == document_id))
        await sql.execute(insert(chunks), rows)
        return len(rows)

    async def index(self, document_id: UUID) -> None:
        """Copy a document's vectors from SQL to Qdrant."""
        if document_id in self._indexed:
            return
        c = chunks.c
        statement = select(c.id, c.vector).where(
            c.document_id == document_id, c.model == self._embedder.model
        )
        async with self._engine.connect() as sql:
            rows = (await sql.execute(statement)).all()
        name = str(document_id)
        for row in rows:
            point = Point(row.id.hex, "1", name, (name,))  # chunks never change: one version for all
            await self._vectors.upsert(self._collection, point, _unpack(row.vector))
        if len(self._indexed) >= _MAX_INDEXED:
            self._indexed.clear()
        self._indexed.add(document_id)

    async def passages(self, document_ids: Iterable[UUID], query: str, limit: int) -> list[DocumentPassage]:
        """The passages of documents that match a query, nearest first."""
        ids = list(document_ids)
        if not ids:
            return []
        try:
            found = await self._nearest(ids, query, limit)
        except (VectorStoreUnavailable, EmbeddingFailed) as problem:
            logger.warning("using the first chunks of documents: %s", problem)
            found = []
        return await self._read(found) or await self.first_chunks(ids, limit)

    async def sections(self, document_ids: Sequence[UUID]) -> list[Section]:
        """All sections of documents, in order; of very long ones, those at the beginning."""
        c, d = chunks.c, documents.c
        length = func.sum(func.length(c.text)).over(order_by=(d.created_at, d.id, c.number)).label("length")
        query = select(d.id, d.name, c.section, c.level, c.heading, c.text, c.rows, length)
        joined = query.join(documents, d.id == c.document_id).where(d.id.in_(document_ids))
        async with self._engine.connect() as sql:
            rows = (await sql.execute(joined.order_by(d.created_at, d.id, c.number))).all()
        kept = [row for row in rows if row.length <= _MAX_SECTIONS]
        parts = groupby(kept, key=lambda row: (row.id, row.name))
        return [
            section
            for (_, name), found in parts
            for section in sections_of(name, [_chunk(row) for row in found])
        ]

    async def first_chunks(self, document_ids: Sequence[UUID], limit: int) -> list[DocumentPassage]:
        """The first chunks of documents, round robin."""
        c = chunks.c
        statement = (
            select(documents.c.name, c.text)
            .join(documents, documents.c.id == c.document_id)
            .where(c.document_id.in_(document_ids))
            .order_by(c.number, documents.c.name)
            .limit(limit)
        )
        async with self._engine.connect() as sql:
            return [DocumentPassage(*row) for row in await sql.execute(statement)]

    async def _nearest(self, document_ids: Sequence[UUID], query: str, limit: int) -> list[UUID]:
        [vector] = await self._embedder.embed([query])
        found = []
        for document_id in document_ids:
            near = await self._of_document(document_id, vector, limit)
            if not near:  # there is always a nearest chunk, so Qdrant has lost them
                self._indexed.discard(document_id)
                near = await self._of_document(document_id, vector, limit)
            found += near
        found.sort(key=lambda near: near.similarity, reverse=True)
        return [UUID(near.point.id) for near in found[:limit]]

    async def _of_document(self, document_id: UUID, vector: Sequence[float], limit: int) -> list[ScoredPoint]:
        await self.index(document_id)
        return await self._vectors.search(
            self._collection, vector, str(document_id), min_similarity=-1.0, limit=limit
        )

    async def _read(self, chunk_ids: Sequence[UUID]) -> list[DocumentPassage]:
        if not chunk_ids:
            return []
        c = chunks.c
        statement = (
            select(c.id, documents.c.name, c.text)
            .join(documents, documents.c.id == c.document_id)
            .where(c.id.in_(chunk_ids))
        )
        async with self._engine.connect() as sql:
            rows = {row.id: DocumentPassage(row.name, row.text) for row in await sql.execute(statement)}
        return [rows[chunk_id] for chunk_id in chunk_ids if chunk_id in rows]


def sections_of(document: str, parts: Iterable[Chunk]) -> list[Section]:
    """The sections of a document's chunks; one of a heading alone has no text."""
    found = []
    for _, group in groupby(parts, key=lambda part: part["section"]):
        chunks_of = list(group)
        heading, level = chunks_of[0]["heading"], chunks_of[0]["level"]
        texts = [part["text"] for part in chunks_of if part["rows"] is None and part["text"] != heading]
        found.append(Section(document, heading, level, "\n\n".join(texts), _titled_tables(chunks_of)))
    return found


def _titled_tables(parts: Sequence[Chunk]) -> list[TitledTable]:
    """The tables of a section, each with its caption, above or below it, or else the section's heading."""
    blocks = [
        (part["rows"], text)
        for part in parts
        for text in (part["text"].split("\n\n") if part["rows"] is None else [""])
    ]
    titles = {at: table_title(text) for at, (_, text) in enumerate(blocks)}
    tables = []
    for at, (rows, _) in enumerate(blocks):
        if rows is not None:
            above, below = titles.get(at - 1, ""), titles.get(at + 1, "")
            tables.append(TitledTable(above or below or parts[0]["heading"], rows))
            titles[at - 1 if above else at + 1] = ""  # a caption names one table
    return tables


def _chunk(row: Any) -> Chunk:
    return Chunk(section=row.section, heading=row.heading, level=row.level, text=row.text, rows=row.rows)


def _pack(vector: Sequence[float]) -> bytes:
    return array("f", vector).tobytes()


def _unpack(data: bytes) -> list[float]:
    return array("f", data).tolist()
