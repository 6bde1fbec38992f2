"""The jobs of slides, one per queue: `ephemera worker slides` runs them.

The result of a job is written to SQL in the same transaction as the step that records it. When a job has
finished, its user is notified and an unused reservation is released, by the process that finished the job: a
worker, or the one that cancelled it. The notification is best effort; SQL has the result anyway.
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
from ephemera.errors import ConnectionFailed, JobFailed, VectorStoreUnavailable
from ephemera.patterns.jobs import JobRow, Run
from ephemera_services.runtime import read_settings
from ephemera_services.slides.document_text import UnreadableDocument, chunks
from ephemera_services.slides.document_text import read as read_text
from ephemera_services.slides.export_files import Page, render_pdf, render_pptx, upload_to_google
from ephemera_services.slides.job_resources import (
    JobResources,
    open_job_resources,
    semantic_backend,
    usage_table,
)
from ephemera_services.slides.keys import JOBS, NOTIFICATIONS, OUTLINES, USAGE
from ephemera_services.slides.progress_events import About, Notification, public_error
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
def worker_context(store: Store, engine: AsyncEngine) -> AbstractAsyncContextManager[JobResources]:
    """Open what a worker process needs, with the same settings as the service."""
    return open_job_resources(read_settings(Settings, os.environ), store, engine)


@JOBS.job(queue="generation", attempts=8, time_limit=timedelta(minutes=30))
async def generate(
    run: Run, presentation_id: UUID, organization_id: UUID, user_id: UUID, period: str
) -> dict[str, Any]:
    """Generate a presentation."""
    del user_id
    # LangGraph takes a second of CPU to import, and only the workers of this job need it.
    from ephemera_services.slides.generation import generate_deck

    made = await generate_deck(run, presentation_id, str(organization_id), period)
    return {"presentation_id": str(presentation_id), "slides": made}


@JOBS.job(queue="ingestion", attempts=5, time_limit=timedelta(minutes=20))
async def ingest(run: Run, document_id: UUID, organization_id: UUID, user_id: UUID) -> dict[str, Any]:
    """Read a document, split it into chunks, and make them searchable."""
    del organization_id, user_id
    resources: JobResources = run.worker_context
    async with run.engine.connect() as sql:
        wanted = select(documents.c.content, documents.c.media_type).where(documents.c.id == document_id)
        row = (await sql.execute(wanted)).one_or_none()
    if row is None:
        raise JobFailed("The document no longer exists.")
    chunk_texts = await asyncio.to_thread(_split, bytes(row.content), row.media_type)
    vectors = await resources.library.embed(chunk_texts)

    async def kept(sql: AsyncConnection) -> int:
        return await resources.library.store(sql, document_id, chunk_texts, vectors)

    made = await run.transact("keep", kept)
    with suppress(VectorStoreUnavailable):  # then the first search does it
        await resources.library.index(document_id)
    return {"document_id": str(document_id), "chunks": made}


@JOBS.job(queue="export", attempts=5, time_limit=timedelta(minutes=10))
async def export(run: Run, export_id: UUID, organization_id: UUID, user_id: UUID) -> dict[str, Any]:
    """Render a presentation as a file, or upload it to Google Slides."""
    del organization_id, user_id
    resources: JobResources = run.worker_context
    url: str | None = None
    source = await _load_export(run, export_id)
    render = render_pdf if source.format == "pdf" else render_pptx
    content: bytes | None = await asyncio.to_thread(render, source.title, source.pages)
    if source.format == "google_slides":
        google = resources.settings.google_credentials
        url = await run.step("upload", upload_to_google, google, source.title, content)
        content = None

    async def kept(sql: AsyncConnection) -> None:
        await sql.execute(update(exports).where(exports.c.id == export_id).values(content=content, url=url))

    await run.transact("keep", kept)
    return {"export_id": str(export_id), "format": source.format}


class _ExportSource(NamedTuple):
    """What to export."""

    format: str
    title: str
    pages: list[Page]


async def _load_export(run: Run, export_id: UUID) -> _ExportSource:
    e, p, s = exports.c, presentations.c, slides.c
    wanted = select(e.format, p.id, p.topic, p.title).join(presentations, p.id == e.presentation_id)
    async with run.engine.connect() as sql:
        row = (await sql.execute(wanted.where(e.id == export_id))).one_or_none()
        if row is None:
            raise JobFailed("The export no longer exists.")
        found = await sql.execute(
            select(s.title, s.bullets, s.notes, s.sources)
            .where(s.presentation_id == row.id)
            .order_by(s.number)
        )
        pages = [Page(title=t, bullets=b, notes=n, sources=o) for t, b, n, o in found]
    if not pages:
        raise JobFailed("The presentation is not written yet.")
    return _ExportSource(row.format, row.title or row.topic, pages)


def _split(content: bytes, media_type: str) -> list[str]:
    try:
        return chunks(read_text(content, media_type))
    except UnreadableDocument as unreadable:
        raise JobFailed(unreadable.reason) from None


_ABOUT: dict[str, About] = {"generate": "presentation", "ingest": "document", "export": "export"}


async def notify_user(store: Store, _: AsyncEngine, row: JobRow) -> None:
    """Release an unused reservation, and notify the user; skipped while Redis is down."""
    if row.kind == "generate" and row.state != "done":
        with suppress(ConnectionFailed):  # it expires by itself
            await _release(store, row)
    about = _ABOUT[row.kind]
    note = Notification(
        about=about,
        id=row.arguments[f"{about}_id"],
        job_id=row.id,
        state="ready" if row.state == "done" else "failed",
        detail=_summary(row),
    )
    with suppress(ConnectionFailed):
        await store[NOTIFICATIONS].push(note, user_id=row.arguments["user_id"])


async def _release(store: Store, row: JobRow) -> None:
    of, which, when = (row.arguments[name] for name in ("organization_id", "presentation_id", "period"))
    await store[USAGE].reservation(of, which, when).release()


def _summary(row: JobRow) -> str:
    if row.state != "done":
        return public_error(row.state, row.error) or ""
    if row.kind == "generate":
        return f"{row.result['slides']} slides were written."
    if row.kind == "ingest":
        return f"{row.result['chunks']} chunks are ready."
    return f"The {row.result['format']} is ready."


JOBS.on_finished(notify_user)
