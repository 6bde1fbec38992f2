"""Documents that users upload: their content is checked, and they are stored in SQL with the account.

They are in SQL and not in a folder, so that a foreign key ties a document to its user, every process can read
it, and one backup has everything. They are few and small (20 per hour, 5 MB unless configured); a service
with large files would keep them in an object store, and only their names here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.datastructures import UploadFile
from starlette.requests import Request

from ephemera_services.identity.tables import documents
from ephemera_services.runtime import problem

_MAX_NAME = 200
FORM_OVERHEAD = 4096
"""Bytes that a multipart form may have besides its document."""


class Document(NamedTuple):
    """An uploaded document."""

    name: str
    media_type: str
    content: bytes


def _is_text(content: bytes) -> bool:
    try:
        return "\x00" not in content.decode()
    except UnicodeDecodeError:
        return False


TYPES: dict[str, Callable[[bytes], bool]] = {
    "application/pdf": lambda content: content.startswith(b"%PDF-"),
    "image/png": lambda content: content.startswith(b"\x89PNG\r\n\x1a\n"),
    "image/jpeg": lambda content: content.startswith(b"\xff\xd8\xff"),
    "text/plain": _is_text,
}
"""The accepted types, and a check of the content for each."""


async def read_document(request: Request, max_bytes: int) -> Document:
    """Read the field `file` of a form; a problem if it is missing, too large, or not what it claims to be."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise problem(415, "Send the document as multipart/form-data, in the field 'file'.")
    async with request.form(max_files=1, max_fields=0) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise problem(422, "The form has no file in its field 'file'.")
        content = await file.read(max_bytes + 1)
        media_type = (file.content_type or "").partition(";")[0].strip().lower()
        name = "".join(filter(str.isprintable, file.filename or "")).rpartition("/")[2] or "document"
    if len(content) > max_bytes:
        raise problem(413, f"The document is larger than {max_bytes:,} bytes.")
    if media_type not in TYPES or not TYPES[media_type](content):
        known = ", ".join(TYPES)
        raise problem(415, f"A document must be one of {known}, and its content must match its type.")
    return Document(name[:_MAX_NAME], media_type, content)


async def store_document(engine: AsyncEngine, user_id: UUID, document: Document) -> dict[str, object]:
    """Store a document; its metadata."""
    facts = {
        "name": document.name,
        "media_type": document.media_type,
        "size": len(document.content),
        "sha256": hashlib.sha256(document.content).hexdigest(),
    }
    document_id = uuid4()
    row = {"id": document_id, "user_id": user_id, "content": document.content, **facts}
    async with engine.begin() as sql:
        await sql.execute(insert(documents).values(row))
    return {"document_id": document_id, **facts}
