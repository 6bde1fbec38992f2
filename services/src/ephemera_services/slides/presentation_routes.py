"""Presentations: begun, read, exported and shared; and what all of it used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Path, Request, Response

from ephemera.patterns.usage import money
from ephemera_services.runtime import problem, problems
from ephemera_services.slides.account_routes import Editor, Reader
from ephemera_services.slides.export_files import PDF, PPTX
from ephemera_services.slides.forms import (
    Begun,
    ExportBegun,
    ExportForm,
    ExportView,
    LimitsView,
    PresentationView,
    SharedView,
    ShareView,
    SlideView,
    UsageView,
    Wish,
)
from ephemera_services.slides.google_slides import NEEDS_CREDENTIALS
from ephemera_services.slides.progress_events import shown_error
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
async def begin(wish: Wish, caller: Editor) -> Begun:
    """Have a presentation written, from the topic and documents that were read."""
    presentation_id, job_id = await caller.service.work.begin_presentation(caller, wish)
    return Begun(presentation_id=presentation_id, job_id=UUID(job_id))


@router.get("/presentations/{presentation_id}", responses=problems(404, 429))
async def read(presentation_id: UUID, caller: Reader) -> PresentationView:
    """A presentation, and how far it is; its slides when it is done."""
    work = caller.service.work
    row = await work.presentation(caller, presentation_id)
    return PresentationView(
        presentation_id=row.id,
        error=shown_error(row.state, row.error),
        slides_completed=await work.slides_completed(row.job_id),
        slides=_views(await work.slides(row.id)),
        **{name: getattr(row, name) for name in _SHOWN},
    )


_SHOWN = (
    "job_id", "topic", "title", "audience", "language", "state", "slides_total", "created_at"
)  # fmt: skip


@router.post(
    "/presentations/{presentation_id}/exports", status_code=202, responses=problems(403, 404, 409, 429)
)
async def begin_export(presentation_id: UUID, form: ExportForm, caller: Editor) -> ExportBegun:
    """Have a file made of a presentation, or Google Slides where credentials are configured (else 409)."""
    if form.format == "google_slides" and caller.service.settings.google_credentials is None:
        raise problem(409, NEEDS_CREDENTIALS)
    export_id, job_id = await caller.service.work.begin_export(caller, presentation_id, form.format)
    return ExportBegun(export_id=export_id, job_id=UUID(job_id))


@router.get("/exports/{export_id}", responses=problems(404, 429))
async def read_export(export_id: UUID, caller: Reader, request: Request) -> ExportView:
    """An export, and where its file is."""
    row = await caller.service.work.export(caller, export_id)
    here = None if row.state != "done" else str(request.url_for("download", export_id=str(export_id)).path)
    return ExportView(
        export_id=row.id,
        presentation_id=row.presentation_id,
        format=row.format,
        state=row.state,
        error=shown_error(row.state, row.error),
        url=row.url or here,
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
    row = await caller.service.work.export(caller, export_id, content=True)
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
    """A link for everybody, the same one each time, and how often it was used."""
    token, views = await caller.service.work.share(caller, presentation_id)
    url = str(request.url_for("shared", token=token).path)
    return ShareView(token=token, url=url, view_count=views)


@router.get("/p/{token}", name="shared", responses=problems(404))
async def shared(
    token: Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_-]+$")], request: Request
) -> SharedView:
    """A shared presentation; counts a view."""
    service: Slides = request.app.state.service
    row = await service.work.shared(token)
    return SharedView(title=row.title or row.topic, slides=_views(await service.work.slides(row.id)))


@router.get("/usage", responses=problems(429))
async def usage(caller: Reader) -> UsageView:
    """What the organization used this month, and what its plan allows."""
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
