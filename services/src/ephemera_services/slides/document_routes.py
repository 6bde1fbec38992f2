"""Documents: uploaded here, and read by a job, in a limited process; nothing is parsed in the service."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.datastructures import UploadFile

from ephemera_services.runtime import problem, problems
from ephemera_services.slides.account_routes import Editor, Reader
from ephemera_services.slides.document_text import UnreadableDocument, WrongType, media_type
from ephemera_services.slides.forms import DocumentAccepted, DocumentView
from ephemera_services.slides.progress_events import public_error
from ephemera_services.slides.workspace import Upload

router = APIRouter(tags=["documents"])

FORM_OVERHEAD = 4096
"""Bytes that a multipart form may have besides its document."""
_MAX_NAME = 200
_MEGABYTE = 1_000_000
_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}


@router.post("/documents", status_code=202, responses=problems(402, 403, 415, 429), openapi_extra=_FORM)
async def add(request: Request, caller: Editor) -> DocumentAccepted:
    """Upload a PDF, DOCX, PPTX or plain text, as large as the plan allows. A job reads it, or refuses it."""
    caller.require_active()
    max_bytes = min(caller.limits.max_file_size_mb * _MEGABYTE, caller.service.settings.document_bytes)
    name, content = await _file(request, max_bytes)
    try:
        kind, digest = await asyncio.to_thread(lambda: (media_type(content), hashlib.sha256(content)))
    except WrongType as wrong:
        raise problem(415, str(wrong)) from None
    except UnreadableDocument as unreadable:
        raise problem(422, str(unreadable)) from None
    upload = Upload(name, kind, digest.hexdigest(), content)
    document_id, job_id = await caller.service.workspace.add_document(caller, upload)
    return DocumentAccepted(document_id=document_id, job_id=UUID(job_id))


@router.get("/documents/{document_id}", responses=problems(404, 429))
async def read(document_id: UUID, caller: Reader) -> DocumentView:
    """A document and the state of its job."""
    row = await caller.service.workspace.document(caller, document_id)
    error = public_error(row.state, row.error)
    return DocumentView(document_id=row.id, error=error, **{name: getattr(row, name) for name in _SHOWN})


_SHOWN = ("name", "media_type", "size", "sha256", "state", "chunks", "job_id", "created_at")


async def _file(request: Request, max_bytes: int) -> tuple[str, bytes]:
    """The name and content of a form's field `file`."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise problem(415, "Send the document as multipart/form-data, in the field 'file'.")
    async with request.form(max_files=1, max_fields=0) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise problem(422, "The form has no file in its field 'file'.")
        content = await file.read(max_bytes + 1)
        name = "".join(filter(str.isprintable, file.filename or "")).rpartition("/")[2] or "document"
    if len(content) > max_bytes:
        raise problem(413, f"The document is larger than the {max_bytes:,} bytes that your plan allows.")
    return name[:_MAX_NAME], content
