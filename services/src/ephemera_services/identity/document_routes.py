"""The documents of users: each sees and deletes their own."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response

from ephemera_services.identity.access import Access, Bearer
from ephemera_services.identity.documents import TYPES, read_document
from ephemera_services.identity.forms import DocumentList, DocumentView, QuotaView
from ephemera_services.runtime import problems

router = APIRouter(prefix="/api/documents", tags=["documents"])

Reader = Annotated[Access, Depends(Bearer("document-read"))]

_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "additionalProperties": False,
                    "properties": {"file": {"type": "string", "format": "binary"}},
                },
                "encoding": {"file": {"contentType": ", ".join(TYPES)}},
            }
        },
    }
}


@router.post("/upload", status_code=201, responses=problems(409, 415, 429), openapi_extra=_FORM)
async def upload(
    request: Request, caller: Annotated[Access, Depends(Bearer("document-upload"))]
) -> DocumentView:
    """Store a document: a PDF, a PNG, a JPEG or plain text, at most 5 MB. 20 per hour."""
    document = await read_document(request, caller.service.settings.document_bytes)
    stored = await caller.service.documents.store(caller.user_id, document)
    return DocumentView.model_validate(stored, from_attributes=True)


@router.get("", responses=problems(429))
async def documents(caller: Reader) -> DocumentList:
    """The caller's documents, the newest first, and how many more there can be."""
    rows = await caller.service.documents.of_user(caller.user_id)
    views = [DocumentView.model_validate(row, from_attributes=True) for row in rows]
    quota = caller.service.documents.quota
    used = QuotaView(
        documents=len(views),
        max_documents=quota.documents,
        bytes=sum(view.size for view in views),
        max_bytes=quota.bytes,
    )
    return DocumentList(documents=views, quota=used)


@router.get(
    "/{document_id:uuid}",
    response_class=Response,
    responses={200: {"content": {kind: {} for kind in TYPES}}, **problems(404, 429)},
)
async def read(document_id: UUID, caller: Reader) -> Response:
    """Download one of the caller's documents."""
    document = await caller.service.documents.read(caller.user_id, document_id)
    response = Response(document.content, media_type=document.media_type)
    response.headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(document.name, safe='')}"
    response.headers["cache-control"] = "no-store"
    response.raw_headers.extend(caller.headers)
    return response


@router.delete("/{document_id:uuid}", status_code=204, responses=problems(404, 429))
async def delete(document_id: UUID, caller: Reader) -> None:
    """Delete one of the caller's documents."""
    await caller.service.documents.delete(caller.user_id, document_id)
