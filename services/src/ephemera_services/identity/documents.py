"""Documents that users upload: checked by what they hold, and kept in SQL, beside the rest of an account.

In SQL, not in a folder: a document then belongs to its user by a foreign key, every process has it, and one
backup holds everything. They are few and small (20 an hour, 5 MB unless configured); a service with large
files would keep them in an object store and only their names here.
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

_LONGEST_NAME = 200
ENVELOPE = 4096
"""Bytes that a form may have around its document."""


class Document(NamedTuple):
    """A document as it was uploaded."""

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
"""The types that are taken, and how a content shows that it is one."""


async def read_document(request: Request, most: int) -> Document:
    """The document of a form, its field `file`; a problem when it is not there, too large, or not as said."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise problem(415, "Send the document as multipart/form-data, in the field 'file'.")
    async with request.form(max_files=1, max_fields=0) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise problem(422, "The form has no file in its field 'file'.")
        content = await file.read(most + 1)
        media_type = (file.content_type or "").partition(";")[0].strip().lower()
        name = "".join(filter(str.isprintable, file.filename or "")).rpartition("/")[2] or "document"
    if len(content) > most:
        raise problem(413, f"The document is larger than {most:,} bytes.")
    if media_type not in TYPES or not TYPES[media_type](content):
        known = ", ".join(TYPES)
        raise problem(415, f"Documents are one of {known}, and hold what their type says.")
    return Document(name[:_LONGEST_NAME], media_type, content)


async def store_document(engine: AsyncEngine, user_id: UUID, document: Document) -> dict[str, object]:
    """Keep a document; what is known of it."""
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
