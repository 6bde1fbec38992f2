"""The jobs of slides, one per queue: `ephemera worker slides` runs them.

The result of a job is written to SQL in the same transaction as the step that records it. When a job has
finished, its user is notified and an unused reservation is released: by the process that finished the job,
or by another worker if that one died. While Redis is down there is no notification; SQL has the result.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
)

from ephemera import Store
from ephemera.errors import ConnectionFailed, JobFailed, JobSnoozed, VectorStoreUnavailable
from ephemera.patterns.jobs import JobRow, Retry, Run
from ephemera_services.runtime import (
    FunctionRefused,
    LimitExceeded,
    ProcessLimits,
    advisory_lock,
    read_settings,
    run_limited,
)
from ephemera_services.slides import document_text
from ephemera_services.slides.brand_kits import theme_of
from ephemera_services.slides.deck import SlideContent, slide_of
from ephemera_services.slides.document_text import Chunk
from ephemera_services.slides.google_slides import upload_to_google
from ephemera_services.slides.job_resources import (
    JobResources,
    open_job_resources,
    semantic_backend,
    usage_table,
)
from ephemera_services.slides.keys import JOBS, NOTIFICATIONS, OUTLINES, USAGE
from ephemera_services.slides.progress_events import About, JobNotification, public_error
from ephemera_services.slides.settings import Settings
from ephemera_services.slides.tables import documents, exports, presentations, slides
from ephemera_services.slides.usage_counts import cost_of, tokens_spent
from ephemera_services.slides.webhooks import announce

__all__ = ["JOBS", "export", "generate", "ingest", "rewrite"]

_STARTING = 0.75  # seconds: by the clock, reading may take as much longer than its processor time
_TURN_INTERVAL = timedelta(seconds=1)
_JOBS, _STEPS = JOBS.tables.jobs, JOBS.tables.steps


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


@JOBS.job(queue="generation", retry=Retry(attempts=8), time_limit=timedelta(minutes=30))
async def generate(
    run: Run, presentation_id: UUID, organization_id: UUID, user_id: UUID, period: str
) -> dict[str, Any]:
    """Generate a presentation."""
    del user_id
    # LangGraph takes a second of CPU to import, and only the workers of this job need it.
    from ephemera_services.slides.generation import generate_deck

    made = await generate_deck(run, presentation_id, str(organization_id), period)
    return {"presentation_id": str(presentation_id), "slides": made}


@JOBS.job(queue="generation", retry=Retry(attempts=8), time_limit=timedelta(minutes=10))
async def rewrite(
    run: Run,
    presentation_id: UUID,
    slide_id: UUID,
    organization_id: UUID,
    user_id: UUID,
    reservation_id: str,
    period: str,
) -> dict[str, Any]:
    """Write one slide of a presentation again."""
    del user_id
    from ephemera_services.slides.generation import rewrite_slide

    await rewrite_slide(run, presentation_id, slide_id, str(organization_id), reservation_id, period)
    return {"presentation_id": str(presentation_id), "slides": 1}


@JOBS.job(queue="ingestion", retry=Retry(attempts=3), time_limit=timedelta(minutes=5))
async def ingest(run: Run, document_id: UUID, organization_id: UUID, user_id: UUID) -> dict[str, Any]:
    """Read a document in a limited process, split it into chunks, and make them searchable."""
    del user_id
    resources: JobResources = run.worker_context
    await run.transact("turn", _take_turn, run.id, organization_id, resources.settings.documents_at_once)
    async with run.engine.connect() as sql:
        query = select(documents.c.content).where(documents.c.id == document_id)
        content = (await sql.execute(query)).scalar_one_or_none()
    if content is None:
        raise JobFailed("The document no longer exists.")
    parts = await _extract(bytes(content), resources.settings)
    vectors = await resources.library.embed([part["text"] for part in parts])

    async def kept(sql: AsyncConnection) -> int:
        return await resources.library.store(sql, document_id, parts, vectors)

    made = await run.transact("keep", kept)
    with suppress(VectorStoreUnavailable):  # then the first search does it
        await resources.library.index(document_id)
    return {"document_id": str(document_id), "chunks": made}


@JOBS.job(queue="export", retry=Retry(attempts=5), time_limit=timedelta(minutes=10))
async def export(run: Run, export_id: UUID, organization_id: UUID, user_id: UUID) -> dict[str, Any]:
    """Render a presentation as a file, or upload it to Google Slides."""
    del user_id
    # Their libraries are slow to import, and only the workers of this job need them.
    from ephemera_services.slides.pdf_export import render_pdf
    from ephemera_services.slides.pptx_export import render_pptx

    resources: JobResources = run.worker_context
    url: str | None = None
    source = await _load_export(run, export_id)
    theme = await theme_of(run.engine, organization_id, source.theme)
    render = render_pdf if source.format == "pdf" else render_pptx
    content: bytes | None = await asyncio.to_thread(render, source.title, source.pages, theme)
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
    theme: str
    pages: list[SlideContent]


async def _load_export(run: Run, export_id: UUID) -> _ExportSource:
    e, p, s = exports.c, presentations.c, slides.c
    query = select(e.format, p.id, p.topic, p.title, p.theme).join(presentations, p.id == e.presentation_id)
    async with run.engine.connect() as sql:
        row = (await sql.execute(query.where(e.id == export_id))).one_or_none()
        if row is None:
            raise JobFailed("The export no longer exists.")
        fields = [s[name] for name in SlideContent.__struct_fields__]
        found = await sql.execute(select(*fields).where(s.presentation_id == row.id).order_by(s.number))
        pages = [slide_of(each) for each in found]
    if not pages:
        raise JobFailed("The presentation is not written yet.")
    return _ExportSource(row.format, row.title or row.topic, row.theme, pages)


async def _take_turn(sql: AsyncConnection, job_id: str, organization_id: UUID, limit: int) -> bool:
    """Begin to read a document, or wait while as many of its organization are being read as may be."""
    await advisory_lock(sql, f"documents of {organization_id}")
    j, s = _JOBS.c, _STEPS.c
    reading = (
        select(func.count())
        .select_from(_JOBS.join(_STEPS, s.job_id == j.id))
        .where(j.queue == "ingestion", j.state == "running", j.lease_until > func.clock_timestamp())
        .where(j.arguments["organization_id"].astext == str(organization_id), j.id != job_id)
        .where(s.name == "turn")
    )
    if (await sql.execute(reading)).scalar_one() >= limit:
        raise JobSnoozed(_TURN_INTERVAL)
    return True


async def _extract(content: bytes, settings: Settings) -> list[Chunk]:
    """The chunks of a document; the job fails if it cannot be read within the limits."""
    seconds, megabytes = settings.reading_seconds, settings.reading_megabytes
    limits = ProcessLimits(memory=megabytes * 1_000_000, cpu=seconds, wall=seconds + _STARTING)
    try:
        return await run_limited(f"{document_text.__name__}:extract", content, limits, list[Chunk])
    except FunctionRefused as refused:
        raise JobFailed(str(refused)) from None
    except LimitExceeded as exceeded:
        use = f"{megabytes} MB of memory" if exceeded.limit == "memory" else f"{seconds} s"
        raise JobFailed(f"Reading the document takes more than {use}; split it, or send its text.") from None


_ABOUT: dict[str, About] = {
    "generate": "presentation",
    "rewrite": "presentation",
    "ingest": "document",
    "export": "export",
}


async def notify_user(store: Store, engine: AsyncEngine, row: JobRow) -> None:
    """Settle what an unfinished job has spent, and notify the user; skipped while Redis is down."""
    if row.kind in ("generate", "rewrite") and row.state != "done":
        with suppress(ConnectionFailed):  # it expires by itself
            await _settle_unfinished(store, engine, row)
    about = _ABOUT[row.kind]
    note = JobNotification(
        about=about,
        id=row.arguments[f"{about}_id"],
        job_id=row.id,
        state="ready" if row.state == "done" else "failed",
        detail=_summary(row),
    )
    with suppress(ConnectionFailed):
        await store[NOTIFICATIONS].push(note, user_id=row.arguments["user_id"])
    payload = {**msgspec.to_builtins(note), "type": f"{about}.{note.state}"}
    with suppress(ConnectionFailed):  # SQL has the deliveries
        await announce(engine, store, UUID(row.arguments["organization_id"]), row.id, payload)


async def _settle_unfinished(store: Store, engine: AsyncEngine, row: JobRow) -> None:
    """Release a reservation; tokens of calls without a usable answer are counted."""
    arguments = row.arguments
    which = arguments.get("reservation_id", arguments["presentation_id"])
    reserved = store[USAGE].reservation(arguments["organization_id"], which, arguments["period"])
    tokens = await tokens_spent(engine, row.id)
    if tokens:
        price = read_settings(Settings, os.environ).cost_micros_per_1k_tokens
        await reserved.settle(tokens=tokens, cost_micros=cost_of(tokens, price))
    else:
        await reserved.release()


def _summary(row: JobRow) -> str:
    if row.state != "done":
        return public_error(row.state, row.error) or ""
    if row.kind == "rewrite":
        return "The slide was written again."
    if row.kind == "generate":
        count = row.result["slides"]
        return "1 slide was written." if count == 1 else f"{count} slides were written."
    if row.kind == "ingest":
        return "It has been read, and can be a source."
    made = {"pptx": "The PPTX", "pdf": "The PDF"}.get(
        row.result["format"], "The presentation on Google Slides"
    )
    return f"{made} is ready."


JOBS.on_finished(notify_user)
