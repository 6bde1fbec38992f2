"""The pieces of documents: found by meaning, from SQL again where Qdrant lost them, in order without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import BytesIO
from uuid import UUID, uuid4

import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.embedded import Postgres
from ephemera.patterns.embedders import Lexical
from ephemera.patterns.semantic_cache import Point, Qdrant
from ephemera_services.runtime import open_engine
from ephemera_services.slides import DEMO_DOCUMENT
from ephemera_services.slides.document_text import Chunk, extract
from ephemera_services.slides.library import Library
from ephemera_services.slides.tables import documents, metadata, organizations, users

PIECES = [chunk["text"] for chunk in extract(BytesIO(DEMO_DOCUMENT.encode()))]


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """A database with the tables of slides."""
    async with open_engine(postgres.database("test_slides_library"), metadata) as opened:
        yield opened


async def _document(engine: AsyncEngine, library: Library, name: str, pieces: list[str]) -> UUID:
    """A document whose pieces are in SQL, and nowhere else."""
    organization_id, user_id, document_id = uuid4(), uuid4(), uuid4()
    ids = {"organization_id": organization_id, "user_id": user_id}
    person = {"email": f"{user_id}@a.example", "password_hash": "", "role": "editor"}
    file = {"name": name, "media_type": "text/plain", "size": 1, "sha256": "", "content": b"", "job_id": ""}
    async with engine.begin() as sql:
        await sql.execute(insert(organizations).values(id=organization_id, name=str(organization_id)))
        await sql.execute(insert(users).values(id=user_id, organization_id=organization_id, **person))
        await sql.execute(insert(documents).values(id=document_id, **ids, **file))
        parts = [Chunk(section=0, heading="", level=0, text=piece, rows=None) for piece in pieces]
        assert await library.store(sql, document_id, parts, await library.embed(pieces)) == len(pieces)
    return document_id


async def test_the_nearest_pieces_come_first_and_only_from_the_documents_asked_for(
    engine: AsyncEngine,
) -> None:
    """A search fills Qdrant from SQL, and finds what is about the question, in the given documents alone."""
    async with Qdrant() as vectors:
        library = Library(engine, Lexical(), vectors)
        pieces = [
            "Krill is small and red.",
            "Ships carry containers over the sea.",
            "Squid live in the deep.",
        ]
        mine = await _document(engine, library, "mine.txt", pieces)
        await _document(engine, library, "other.txt", ["Squid live in the deep, says another."])
        found = await library.passages([mine], "Where do squid live?", 2)
        assert (found[0].document, found[0].text) == ("mine.txt", "Squid live in the deep.")
        assert {passage.document for passage in found} == {"mine.txt"}
        assert await library.passages([], "Where do squid live?", 2) == []


async def test_what_qdrant_has_lost_is_put_there_again(engine: AsyncEngine) -> None:
    """A search that finds nothing of a document refills Qdrant, and searches again."""
    async with Qdrant() as vectors:
        library = Library(engine, Lexical(), vectors)
        document_id = await _document(engine, library, "whales.txt", PIECES)
        first = await library.passages([document_id], "krill", 1)
        [collection] = await vectors.collections("slides-chunks")
        page = await vectors.scroll(collection, None)
        await vectors.delete(collection, [Point(point.id, point.stamp) for point in page.points])
        assert await library.passages([document_id], "krill", 1) == first


async def test_without_qdrant_documents_are_read_in_order(engine: AsyncEngine) -> None:
    """Without an index the first chunks of each document are used."""
    library = Library(engine, Lexical(), Qdrant("http://127.0.0.1:1"))
    document_id = await _document(engine, library, "whales.txt", PIECES)
    found = await library.passages([document_id], "krill", 2)
    assert [passage.text for passage in found] == PIECES[:2]
