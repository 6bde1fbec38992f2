"""The jobs of slides, one for each queue: `ephemera worker slides` runs them.

What a job makes is written to SQL in the same transaction as the step that says so. When it has ended, in
whatever way, its user is notified (`endings`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
)

from ephemera import Store
from ephemera.errors import JobFailed, VectorStoreUnavailable
from ephemera.patterns.jobs import Run
from ephemera_services.runtime import read_settings
from ephemera_services.slides.chunks import chunks
from ephemera_services.slides.document_texts import UnreadableDocument
from ephemera_services.slides.document_texts import read as read_text
from ephemera_services.slides.endings import notify_user
from ephemera_services.slides.equipment import Equipment, equipped, semantic_backend, usage_table
from ephemera_services.slides.export_files import Page, as_pdf, as_pptx
from ephemera_services.slides.google_slides import upload
from ephemera_services.slides.keys import JOBS, OUTLINES, USAGE
from ephemera_services.slides.settings import Settings
from ephemera_services.slides.tables import documents, exports, presentations, slides

__all__ = ["JOBS", "export", "generate", "ingest"]


@JOBS.store_resources
@asynccontextmanager
async def store_resources(engine: AsyncEngine) -> AsyncIterator[dict[Any, object]]:
    """What a worker's store needs besides Redis."""
    async with semantic_backend(read_settings(Settings, os.environ)) as backend:
        yield {USAGE: usage_table(engine), OUTLINES: backend}


@JOBS.worker_context
def worker_context(store: Store, engine: AsyncEngine) -> AbstractAsyncContextManager[Equipment]:
    """What a worker's processes open, by the same environment as the service."""
    return equipped(read_settings(Settings, os.environ), store, engine)


JOBS.on_finished(notify_user)


@JOBS.job(queue="generation", attempts=8, time_limit=timedelta(minutes=30))
async def generate(
    run: Run, presentation_id: UUID, organization_id: UUID, user_id: UUID, period: str
) -> dict[str, Any]:
    """Write a presentation."""
    del user_id
    # LangGraph takes a second of CPU to import, and only the workers of this job need it.
    from ephemera_services.slides.generation import generate_deck

    made = await generate_deck(run, presentation_id, str(organization_id), period)
    return {"presentation_id": str(presentation_id), "slides": made}


@JOBS.job(queue="ingestion", attempts=5, time_limit=timedelta(minutes=20))
async def ingest(run: Run, document_id: UUID, organization_id: UUID, user_id: UUID) -> dict[str, Any]:
    """Read a document, cut it into pieces, and make them searchable."""
    del organization_id, user_id
    equipment: Equipment = run.worker_context
    async with run.engine.connect() as sql:
        wanted = select(documents.c.content, documents.c.media_type).where(documents.c.id == document_id)
        row = (await sql.execute(wanted)).one_or_none()
    if row is None:
        raise JobFailed("The document is not there any more.")
    pieces = await asyncio.to_thread(_pieces, bytes(row.content), row.media_type)
    vectors = await equipment.library.embedded(pieces)

    async def kept(sql: AsyncConnection) -> int:
        return await equipment.library.keep(sql, document_id, pieces, vectors)

    made = await run.transact("keep", kept)
    with suppress(VectorStoreUnavailable):  # then by whoever searches first
        await equipment.library.index(document_id)
    return {"document_id": str(document_id), "chunks": made}


@JOBS.job(queue="export", attempts=5, time_limit=timedelta(minutes=10))
async def export(run: Run, export_id: UUID, organization_id: UUID, user_id: UUID) -> dict[str, Any]:
    """Make a file of a presentation, or a presentation at Google."""
    del organization_id, user_id
    equipment: Equipment = run.worker_context
    url: str | None = None
    wish = await _wish(run, export_id)
    draw = as_pdf if wish.format == "pdf" else as_pptx
    content: bytes | None = await asyncio.to_thread(draw, wish.title, wish.pages)
    if wish.format == "google_slides":
        google = equipment.settings.google_credentials
        url = await run.step("upload", upload, google, wish.title, content)
        content = None

    async def kept(sql: AsyncConnection) -> None:
        await sql.execute(update(exports).where(exports.c.id == export_id).values(content=content, url=url))

    await run.transact("keep", kept)
    return {"export_id": str(export_id), "format": wish.format}


class _Wish(NamedTuple):
    """What is to be exported."""

    format: str
    title: str
    pages: list[Page]


async def _wish(run: Run, export_id: UUID) -> _Wish:
    e, p, s = exports.c, presentations.c, slides.c
    wanted = select(e.format, p.id, p.topic, p.title).join(presentations, p.id == e.presentation_id)
    async with run.engine.connect() as sql:
        row = (await sql.execute(wanted.where(e.id == export_id))).one_or_none()
        if row is None:
            raise JobFailed("The export is not there any more.")
        found = await sql.execute(
            select(s.title, s.bullets, s.notes, s.sources)
            .where(s.presentation_id == row.id)
            .order_by(s.number)
        )
        pages = [Page(title=t, bullets=b, notes=n, sources=o) for t, b, n, o in found]
    if not pages:
        raise JobFailed("The presentation is not written yet.")
    return _Wish(row.format, row.title or row.topic, pages)


def _pieces(content: bytes, media_type: str) -> list[str]:
    try:
        return chunks(read_text(content, media_type))
    except UnreadableDocument as unreadable:
        raise JobFailed(unreadable.reason) from None
