"""The library: presentations and documents listed, searched and deleted, slides edited, jobs cancelled."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query

from ephemera.errors import UnknownJob
from ephemera_services.runtime import problem, problems
from ephemera_services.slides.account_routes import Editor, Reader
from ephemera_services.slides.forms import DocumentView, SlideView
from ephemera_services.slides.job_routes import job_of
from ephemera_services.slides.library_forms import (
    DocumentList,
    PresentationChange,
    PresentationList,
    PresentationSummary,
    SlideChange,
    SlideOrder,
    StartedJob,
)
from ephemera_services.slides.presentation_routes import slide_view
from ephemera_services.slides.progress_events import public_error

router = APIRouter(tags=["library"])

_Text = Annotated[str, Query(alias="q", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Limit = Annotated[int, Query(ge=1, le=100)]
_Offset = Annotated[int, Query(ge=0, le=100_000)]
_SUMMARY = ("job_id", "topic", "title", "theme", "language", "state", "slides", "shared", "created_at")
_DOCUMENT = ("name", "media_type", "size", "sha256", "state", "chunks", "job_id", "created_at")


@router.get("/presentations", responses=problems(429))
async def list_presentations(
    caller: Reader, text: _Text = "", limit: _Limit = 20, offset: _Offset = 0
) -> PresentationList:
    """The presentations, the newest first, or those whose title, topic or slides contain `q`."""
    rows = await caller.service.editor.presentations(caller, text, limit, offset)
    found = [
        PresentationSummary(
            presentation_id=row.id, error=public_error(row.state, row.error), **_fields(row, _SUMMARY)
        )
        for row in rows
    ]
    return PresentationList(presentations=found, total=rows[0].total if rows else 0)


@router.patch("/presentations/{presentation_id}", status_code=204, responses=problems(403, 404, 409, 429))
async def change_presentation(presentation_id: UUID, form: PresentationChange, caller: Editor) -> None:
    """Change the title or the theme of a presentation."""
    values = form.model_dump(exclude_unset=True, exclude_none=True)
    await caller.service.editor.change(caller, presentation_id, values)


@router.delete("/presentations/{presentation_id}", status_code=204, responses=problems(403, 404, 429))
async def delete_presentation(presentation_id: UUID, caller: Editor) -> None:
    """Delete a presentation with its slides, exports and public link; a job that writes it is cancelled."""
    await caller.service.editor.delete(caller, presentation_id)


@router.patch("/presentations/{presentation_id}/slides/{slide_id}", responses=problems(403, 404, 409, 429))
async def edit_slide(presentation_id: UUID, slide_id: UUID, form: SlideChange, caller: Editor) -> SlideView:
    """Change fields of a slide; those that are not sent stay."""
    values = form.model_dump(exclude_unset=True)
    return slide_view(await caller.service.editor.edit(caller, presentation_id, slide_id, values))


@router.delete(
    "/presentations/{presentation_id}/slides/{slide_id}",
    status_code=204,
    responses=problems(403, 404, 409, 429),
)
async def delete_slide(presentation_id: UUID, slide_id: UUID, caller: Editor) -> None:
    """Delete a slide; 409 for the last one."""
    await caller.service.editor.delete_slide(caller, presentation_id, slide_id)


@router.put("/presentations/{presentation_id}/order", status_code=204, responses=problems(403, 404, 409, 429))
async def reorder_slides(presentation_id: UUID, form: SlideOrder, caller: Editor) -> None:
    """Put the slides of a presentation in another order; 409 unless all of them are named, each once."""
    await caller.service.editor.reorder(caller, presentation_id, form.slide_ids)


@router.post(
    "/presentations/{presentation_id}/slides/{slide_id}/regenerate",
    status_code=202,
    responses=problems(402, 403, 404, 409, 429),
)
async def regenerate_slide(presentation_id: UUID, slide_id: UUID, caller: Editor) -> StartedJob:
    """Write a slide again, by its title; the job's events have it when it is written."""
    caller.require_active()
    job_id = await caller.service.editor.regenerate(caller, presentation_id, slide_id)
    return StartedJob(job_id=UUID(job_id))


@router.post("/jobs/{job_id}/cancel", status_code=204, responses=problems(403, 404, 409, 429))
async def cancel_job(job_id: UUID, caller: Editor) -> None:
    """Cancel a job that waits or runs; a worker that runs it stops within about a second."""
    row = await job_of(caller, job_id)
    try:
        await caller.service.workspace.jobs.cancel(row.id)
    except UnknownJob:
        raise problem(409, f"The job has ended: it is {row.state}.") from None


@router.get("/documents", responses=problems(429))
async def list_documents(
    caller: Reader, text: _Text = "", limit: _Limit = 20, offset: _Offset = 0
) -> DocumentList:
    """The organization's documents, the newest first, or those whose name contains `q`."""
    rows = await caller.service.editor.documents(caller, text, limit, offset)
    found = [
        DocumentView(document_id=row.id, error=public_error(row.state, row.error), **_fields(row, _DOCUMENT))
        for row in rows
    ]
    return DocumentList(documents=found, total=rows[0].total if rows else 0)


@router.delete("/documents/{document_id}", status_code=204, responses=problems(403, 404, 429))
async def delete_document(document_id: UUID, caller: Editor) -> None:
    """Delete a document; presentations that were made from it stay."""
    await caller.service.editor.delete_document(caller, document_id)


def _fields(row: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}
