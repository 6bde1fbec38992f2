"""Presentations: generate, read, export and share them; and the usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Path, Request, Response

from ephemera.patterns.usage import money
from ephemera_services.runtime import problem, problems
from ephemera_services.slides.account_routes import Editor, Reader
from ephemera_services.slides.export_files import NEEDS_CREDENTIALS, PDF, PPTX
from ephemera_services.slides.forms import (
    ExportAccepted,
    ExportForm,
    ExportView,
    LimitsView,
    PresentationAccepted,
    PresentationRequest,
    PresentationView,
    SharedView,
    ShareView,
    SlideView,
    UsageView,
)
from ephemera_services.slides.progress_events import public_error
from ephemera_services.slides.service import Slides

router = APIRouter(tags=["presentations"])

_TYPES = {"pptx": PPTX, "pdf": PDF}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file",
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (PPTX, PDF)},
    }
}


@router.post("/presentations", status_code=202, responses=problems(402, 403, 409, 429))
async def generate(form: PresentationRequest, caller: Editor) -> PresentationAccepted:
    """Generate a presentation from a topic and documents."""
    presentation_id, job_id = await caller.service.workspace.start_presentation(caller, form)
    return PresentationAccepted(presentation_id=presentation_id, job_id=UUID(job_id))


@router.get("/presentations/{presentation_id}", responses=problems(404, 429))
async def read(presentation_id: UUID, caller: Reader) -> PresentationView:
    """A presentation and the state of its job; its slides when it is done."""
    workspace = caller.service.workspace
    row = await workspace.presentation(caller, presentation_id)
    return PresentationView(
        presentation_id=row.id,
        error=public_error(row.state, row.error),
        slides_completed=await workspace.slides_completed(row.job_id),
        slides=_views(await workspace.slides(row.id)),
        **{name: getattr(row, name) for name in _SHOWN},
    )


_SHOWN = (
    "job_id", "topic", "title", "audience", "language", "state", "slides_total", "created_at"
)  # fmt: skip


@router.post(
    "/presentations/{presentation_id}/exports", status_code=202, responses=problems(403, 404, 409, 429)
)
async def start_export(presentation_id: UUID, form: ExportForm, caller: Editor) -> ExportAccepted:
    """Export a presentation as a file, or to Google Slides if credentials are configured (else 409)."""
    if form.format == "google_slides" and caller.service.settings.google_credentials is None:
        raise problem(409, NEEDS_CREDENTIALS)
    export_id, job_id = await caller.service.workspace.start_export(caller, presentation_id, form.format)
    return ExportAccepted(export_id=export_id, job_id=UUID(job_id))


@router.get("/exports/{export_id}", responses=problems(404, 429))
async def read_export(export_id: UUID, caller: Reader, request: Request) -> ExportView:
    """An export and the URL of its file."""
    row = await caller.service.workspace.export(caller, export_id)
    download_url = (
        None if row.state != "done" else str(request.url_for("download", export_id=str(export_id)).path)
    )
    return ExportView(
        export_id=row.id,
        presentation_id=row.presentation_id,
        format=row.format,
        state=row.state,
        error=public_error(row.state, row.error),
        url=row.url or download_url,
        job_id=row.job_id,
        created_at=row.created_at,
    )


@router.get(
    "/exports/{export_id}/file",
    name="download",
    responses={**_FILE, **problems(404, 409, 429)},
    response_class=Response,
)
async def download(export_id: UUID, caller: Reader) -> Response:
    """The file of an export."""
    row = await caller.service.workspace.export(caller, export_id, content=True)
    if row.content is None:
        raise problem(409, f"There is no file: the export is {row.state}.")
    name = quote(f"{(row.title or 'presentation')[:80]}.{row.format}", safe="")
    headers = {
        "content-disposition": f"attachment; filename=\"presentation.{row.format}\"; filename*=UTF-8''{name}",
        "cache-control": "private, no-store",
    }
    return Response(bytes(row.content), media_type=_TYPES[row.format], headers=headers)


@router.post("/presentations/{presentation_id}/shares", status_code=201, responses=problems(403, 404, 429))
async def share(presentation_id: UUID, caller: Editor, request: Request) -> ShareView:
    """Create or return the public link of a presentation, and its number of views."""
    token, views = await caller.service.workspace.share(caller, presentation_id)
    url = str(request.url_for("shared", token=token).path)
    return ShareView(token=token, url=url, view_count=views)


@router.get("/p/{token}", name="shared", responses=problems(404))
async def shared(
    token: Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_-]+$")], request: Request
) -> SharedView:
    """A shared presentation; counts a view."""
    service: Slides = request.app.state.service
    row = await service.workspace.shared(token)
    return SharedView(title=row.title or row.topic, slides=_views(await service.workspace.slides(row.id)))


@router.get("/usage", responses=problems(429))
async def usage(caller: Reader) -> UsageView:
    """The organization's usage of this month, and its limits."""
    totals = await caller.service.usage.totals(str(caller.organization_id))
    return UsageView(
        period=totals.period,
        used=totals.used,
        reserved=totals.reserved,
        cost=str(money(totals.used["cost_micros"])),
        limits=LimitsView.model_validate(caller.limits),
    )


def _views(rows: Sequence[Any]) -> list[SlideView]:
    return [
        SlideView(
            slide_id=row.id,
            number=row.number,
            title=row.title,
            bullets=row.bullets,
            notes=row.notes,
            sources=row.sources,
        )
        for row in rows
    ]
