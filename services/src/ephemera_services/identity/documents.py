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

from sqlalchemy import ColumnElement, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from starlette.datastructures import UploadFile
from starlette.requests import Request

from ephemera_services.identity.tables import AnyRow, documents
from ephemera_services.identity.user_locks import lock_user
from ephemera_services.runtime import problem

_MAX_NAME = 200
_NO_DOCUMENT = "You have no such document."
_METADATA = (
    documents.c.id.label("document_id"),
    documents.c.name,
    documents.c.media_type,
    documents.c.size,
    documents.c.sha256,
    documents.c.created_at,
)
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


class DocumentQuota(NamedTuple):
    """How many documents, and how many bytes of them, a user can store."""

    documents: int
    bytes: int


class Documents:
    """The documents of all users."""

    def __init__(self, engine: AsyncEngine, quota: DocumentQuota) -> None:
        self._engine = engine
        self.quota = quota

    async def store(self, user_id: UUID, document: Document) -> AnyRow:
        """Store a document; its metadata, or 409 if it does not fit into the user's quota."""
        row = {
            "id": uuid4(),
            "user_id": user_id,
            "name": document.name,
            "media_type": document.media_type,
            "size": len(document.content),
            "sha256": hashlib.sha256(document.content).hexdigest(),
            "content": document.content,
        }
        async with self._engine.begin() as sql:
            await lock_user(sql, user_id)  # one upload of a user at a time, so that the quota holds
            self._require_room(await _usage(sql, user_id), len(document.content))
            return (await sql.execute(insert(documents).values(row).returning(*_METADATA))).one()

    async def of_user(self, user_id: UUID) -> list[AnyRow]:
        """The metadata of a user's documents, the newest first."""
        query = select(*_METADATA).where(documents.c.user_id == user_id)
        async with self._engine.connect() as sql:
            return list((await sql.execute(query.order_by(documents.c.created_at.desc()))).all())

    async def read(self, user_id: UUID, document_id: UUID) -> Document:
        """A user's document; 404 if they have no such one."""
        query = select(documents.c.name, documents.c.media_type, documents.c.content)
        async with self._engine.connect() as sql:
            row = (await sql.execute(query.where(_is_own(user_id, document_id)))).one_or_none()
        if row is None:
            raise problem(404, _NO_DOCUMENT)
        return Document(*row)

    async def delete(self, user_id: UUID, document_id: UUID) -> None:
        """Delete a user's document; 404 if they have no such one."""
        async with self._engine.begin() as sql:
            if not (await sql.execute(delete(documents).where(_is_own(user_id, document_id)))).rowcount:
                raise problem(404, _NO_DOCUMENT)

    def _require_room(self, used: DocumentQuota, size: int) -> None:
        if used.documents >= self.quota.documents:
            raise problem(
                409, f"You have {used.documents:,} documents, which is the limit: delete one first."
            )
        if used.bytes + size > self.quota.bytes:
            left = self.quota.bytes - used.bytes
            raise problem(409, f"Your documents may have {left:,} more bytes: delete one first.")


async def _usage(sql: AsyncConnection, user_id: UUID) -> DocumentQuota:
    query = select(func.count(), func.coalesce(func.sum(documents.c.size), 0))
    count, size = (await sql.execute(query.where(documents.c.user_id == user_id))).one()
    return DocumentQuota(count, int(size))


def _is_own(user_id: UUID, document_id: UUID) -> ColumnElement[bool]:
    return (documents.c.id == document_id) & (documents.c.user_id == user_id)
