"""Presentations: generate, read, export and share them; and the usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import FileResponse

from ephemera.patterns.usage import money
from ephemera_services.runtime import problem, problems
from ephemera_services.slides.account_routes import Editor, Reader
from ephemera_services.slides.brand_kits import theme_of
from ephemera_services.slides.chart_data import chart_of
from ephemera_services.slides.deck import slide_of
from ephemera_services.slides.document_text import PDF, PPTX
from ephemera_services.slides.forms import (
    ChartView,
    ExportAccepted,
    ExportForm,
    ExportView,
    LimitsView,
    PresentationAccepted,
    PresentationRequest,
    PresentationView,
    SharedSlide,
    SharedView,
    ShareForm,
    ShareView,
    SlideView,
    UsageView,
)
from ephemera_services.slides.google_slides import NEEDS_CREDENTIALS
from ephemera_services.slides.progress_events import public_error
from ephemera_services.slides.service import Slides
from ephemera_services.slides.share_page import share_page
from ephemera_services.slides.text_fit import FONTS
from ephemera_services.slides.workspace import Share

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
    caller.require_active()
    presentation_id, job_id = await caller.service.workspace.start_presentation(caller, form)
    return PresentationAccepted(presentation_id=presentation_id, job_id=UUID(job_id))


@router.get("/presentations/{presentation_id}", responses=problems(404, 429))
async def read(presentation_id: UUID, caller: Reader) -> PresentationView:
    """A presentation, the state of its job, and the slides that are written so far."""
    workspace = caller.service.workspace
    row = await workspace.presentation(caller, presentation_id)
    slides = [slide_view(slide) for slide in await workspace.slides(row.id)]
    completed, outlined = await workspace.count_slides(row.job_id)
    return PresentationView(
        presentation_id=row.id,
        error=public_error(row.state, row.error),
        slides_total=len(slides) if row.state == "done" else outlined or row.slides_total,
        slides_completed=completed,
        slides=slides,
        **{name: getattr(row, name) for name in _SHOWN},
    )


_SHOWN = (
    "job_id", "topic", "title", "audience", "language", "theme", "state", "created_at"
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
async def share(
    presentation_id: UUID, caller: Editor, request: Request, form: ShareForm | None = None
) -> ShareView:
    """Create the public link of a presentation, or change its end; it shows no notes and no sources."""
    days = None if form is None else form.days
    return _share_view(request, await caller.service.workspace.share(caller, presentation_id, days))


@router.get("/presentations/{presentation_id}/shares", responses=problems(403, 404, 429))
async def read_share(presentation_id: UUID, caller: Editor, request: Request) -> ShareView:
    """The public link of a presentation; 404 if it is not shared, or no longer."""
    return _share_view(request, await caller.service.workspace.find_share(caller, presentation_id))


@router.delete("/presentations/{presentation_id}/shares", status_code=204, responses=problems(403, 404, 429))
async def withdraw_share(presentation_id: UUID, caller: Editor) -> None:
    """Withdraw the public link of a presentation; another one has another token."""
    await caller.service.workspace.withdraw_share(caller, presentation_id)


@router.get(
    "/p/{token}",
    name="shared",
    response_model=SharedView,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}, **problems(404, 429)},
)
async def shared(
    token: Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_-]+$")],
    request: Request,
    response: Response,
) -> SharedView | Response:
    """A shared presentation, as a page for browsers; counts a view. It never has notes or sources."""
    service: Slides = request.app.state.service
    response.raw_headers.extend(await service.gate.consume_shared_read(request.scope))
    response.headers.update({"vary": "accept", "cache-control": "private, no-cache"})
    row = await service.workspace.shared(token)
    title, slides = row.title or row.topic, _without_sources(await service.workspace.slides(row.id))
    if "text/html" in request.headers.get("accept", ""):
        theme = await theme_of(service.workspace.engine, row.organization_id, row.theme)
        page, policy = share_page(title, [slide_of(slide) for slide in slides], theme, row.language)
        headers = {**response.headers, "content-security-policy": policy}
        headers.pop("content-length", None)
        return Response(page, media_type="text/html", headers=headers)
    shown = [SharedSlide.model_validate(slide, from_attributes=True) for slide in slides]
    return SharedView(title=title, slides=shown)


@router.get("/fonts/{weight}.ttf", include_in_schema=False)
async def font(weight: Literal["regular", "bold"]) -> FileResponse:
    """The font of slides on the page, which is that of exports."""
    path = FONTS / f"Carlito-{weight.capitalize()}.ttf"
    return FileResponse(path, media_type="font/ttf", headers={"cache-control": "public, max-age=31536000"})


@router.get("/usage", responses=problems(429))
async def usage(caller: Reader) -> UsageView:
    """The organization's usage of this month, its storage, and its limits."""
    totals = await caller.service.usage.totals(str(caller.organization_id))
    return UsageView(
        period=totals.period,
        used=totals.used,
        reserved=totals.reserved,
        cost=str(money(totals.used["cost_micros"])),
        storage_bytes=await caller.service.workspace.storage_used(caller.organization_id),
        limits=LimitsView.model_validate(caller.limits),
    )


def _without_sources(slides: Sequence[Any]) -> list[Any]:
    """Slides without one that is about nothing but the sources."""
    return [slide for slide in slides if slide.layout != "closing" or slide.bullets]


def _share_view(request: Request, share: Share) -> ShareView:
    url = str(request.url_for("shared", token=share.token).path)
    return ShareView(url=url, **share._asdict())


def slide_view(row: Any) -> SlideView:
    """A slide as its editors see it."""
    chart = chart_of(slide_of(row)) if row.layout == "chart" else None
    shown = None if chart is None else ChartView.model_validate(chart)
    return SlideView(slide_id=row.id, chart=shown, **{name: getattr(row, name) for name in _SLIDE})


_SLIDE = ("number", "layout", "title", "bullets", "columns", "table", "notes", "sources")
