"""What a document says: PDF, DOCX or plain text in, text out; or a clear reason why not.

A document is checked when it is uploaded (`check`), by its content and not by its name: what is encrypted,
broken, or would unpack to far more than it is, is refused there. All of it is read later, in a job (`read`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile

from ephemera.errors import EphemeraError

if TYPE_CHECKING:
    from pypdf import PdfReader

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
TEXT = "text/plain"

_MOST_UNPACKED = 200_000_000  # bytes of a DOCX's parts together
_MOST_PAGES = 2_000
_MOST_TEXT = 5_000_000  # characters of a document that are read
_SPACES = re.compile(r"[ \t\u00a0]+")
_OLD_WORD = b"\xd0\xcf\x11\xe0"  # also what an encrypted DOCX begins with

logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it repeats what is in documents


class UnreadableDocument(EphemeraError, ValueError):
    """A document that cannot be used; `reason` is for whoever sent it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WrongType(UnreadableDocument):
    """It is no PDF, DOCX or text, or not what it says it is."""


def check(content: bytes) -> str:
    """The type of a document that can be read; `UnreadableDocument` otherwise."""
    if not content:
        raise UnreadableDocument("The document is empty.")
    if content.startswith(b"%PDF-"):
        _guarded("PDF", lambda: _pdf(content))
        return PDF
    if content.startswith(b"PK\x03\x04"):
        _guarded("DOCX", lambda: _docx(content))
        return DOCX
    if content.startswith(_OLD_WORD):
        raise UnreadableDocument("It is an encrypted or an old Office document; send a plain DOCX.")
    _text(content)
    return TEXT


def read(content: bytes, media_type: str) -> str:
    """The text of a document, its paragraphs apart by empty lines."""
    readers: dict[str, Callable[[], str]] = {
        PDF: lambda: "\n\n".join(_pages(_pdf(content))),
        DOCX: lambda: "\n\n".join(_paragraphs(_docx(content))),
        TEXT: lambda: _text(content),
    }
    text = _guarded(media_type, readers[media_type])
    tidy = _SPACES.sub(" ", text.replace("\x00", "")).strip()
    if not tidy:
        raise UnreadableDocument("There is no text in the document; is it a scan?")
    return tidy[:_MOST_TEXT]


def _guarded(kind: str, work: Callable[[], object]) -> str:
    """What the work gives; whatever it stumbles over means that the document is broken."""
    try:
        return work()  # type: ignore[return-value] # `check` does not look at it
    except UnreadableDocument:
        raise
    except Exception as problem:  # libraries raise whatever a broken file makes them do
        raise UnreadableDocument(f"The {kind} is broken and cannot be read.") from problem


def _pdf(content: bytes) -> PdfReader:
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(content))
    if reader.is_encrypted:
        raise UnreadableDocument("The PDF is encrypted; send one without a password.")
    if not 1 <= len(reader.pages) <= _MOST_PAGES:
        raise UnreadableDocument(f"The PDF must have 1 to {_MOST_PAGES} pages.")
    return reader


def _pages(reader: PdfReader) -> Iterator[str]:
    length = 0
    for page in reader.pages:
        text = page.extract_text()
        length += len(text)
        yield text
        if length > _MOST_TEXT:
            return


def _docx(content: bytes) -> list[str]:
    try:
        with ZipFile(BytesIO(content)) as parts:
            names = set(parts.namelist())
            unpacked = sum(part.file_size for part in parts.infolist())
    except BadZipFile:
        raise UnreadableDocument("The DOCX is broken and cannot be read.") from None
    if "word/document.xml" not in names:
        raise WrongType("It is an archive, but no DOCX: there is no word/document.xml in it.")
    if unpacked > _MOST_UNPACKED:
        raise UnreadableDocument(f"The DOCX unpacks to more than {_MOST_UNPACKED:,} bytes.")
    from docx import Document

    return [paragraph.text for paragraph in Document(BytesIO(content)).paragraphs]


def _paragraphs(paragraphs: list[str]) -> Iterator[str]:
    return (text for text in paragraphs if text.strip())


def _text(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WrongType("Documents are PDF, DOCX or plain text in UTF-8.") from None
    if "\x00" in text:
        raise WrongType("Documents are PDF, DOCX or plain text in UTF-8; this has zero bytes.")
    return text
