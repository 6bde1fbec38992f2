"""Extracts the text of PDF, DOCX and plain text documents, and splits it into chunks.

A document is checked at upload (`check`), by its content and not by its name: encrypted and broken files and
decompression bombs are refused. Its text is read later, in a job (`read`). Chunks are whole sentences, about
a paragraph each; they are searched and quoted.
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

_MAX_UNPACKED = 200_000_000  # bytes of a DOCX's parts together
_MAX_PAGES = 2_000
_MAX_TEXT = 5_000_000  # characters of a document that are read
_SPACES = re.compile(r"[ \t\u00a0]+")
_OLD_WORD = b"\xd0\xcf\x11\xe0"  # also what an encrypted DOCX begins with

logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs the content of documents


class UnreadableDocument(EphemeraError, ValueError):
    """A document that cannot be used; `reason` is for its user."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WrongType(UnreadableDocument):
    """Not a PDF, DOCX or text, or not what it claims to be."""


def check(content: bytes) -> str:
    """Return the type of a readable document; `UnreadableDocument` otherwise."""
    if not content:
        raise UnreadableDocument("The document is empty.")
    if content.startswith(b"%PDF-"):
        _guarded("PDF", lambda: _pdf(content))
        return PDF
    if content.startswith(b"PK\x03\x04"):
        _guarded("DOCX", lambda: _docx(content))
        return DOCX
    if content.startswith(_OLD_WORD):
        raise UnreadableDocument("This is an encrypted or a legacy Office document; send a plain DOCX.")
    _text(content)
    return TEXT


def read(content: bytes, media_type: str) -> str:
    """Return the text of a document, with empty lines between paragraphs."""
    readers: dict[str, Callable[[], str]] = {
        PDF: lambda: "\n\n".join(_pages(_pdf(content))),
        DOCX: lambda: "\n\n".join(_paragraphs(_docx(content))),
        TEXT: lambda: _text(content),
    }
    text = _guarded(media_type, readers[media_type])
    cleaned = _SPACES.sub(" ", text.replace("\x00", "")).strip()
    if not cleaned:
        raise UnreadableDocument("The document contains no text; is it a scan?")
    return cleaned[:_MAX_TEXT]


def _guarded(kind: str, work: Callable[[], object]) -> str:
    """Call `work`; any exception means that the document is broken."""
    try:
        return work()  # type: ignore[return-value] # `check` ignores it
    except UnreadableDocument:
        raise
    except Exception as problem:  # the libraries raise anything for a broken file
        raise UnreadableDocument(f"The {kind} is broken and cannot be read.") from problem


def _pdf(content: bytes) -> PdfReader:
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(content))
    if reader.is_encrypted:
        raise UnreadableDocument("The PDF is encrypted; send one without a password.")
    if not 1 <= len(reader.pages) <= _MAX_PAGES:
        raise UnreadableDocument(f"The PDF must have 1 to {_MAX_PAGES} pages.")
    return reader


def _pages(reader: PdfReader) -> Iterator[str]:
    length = 0
    for page in reader.pages:
        text = page.extract_text()
        length += len(text)
        yield text
        if length > _MAX_TEXT:
            return


def _docx(content: bytes) -> list[str]:
    try:
        with ZipFile(BytesIO(content)) as parts:
            names = set(parts.namelist())
            unpacked = sum(part.file_size for part in parts.infolist())
    except BadZipFile:
        raise UnreadableDocument("The DOCX is broken and cannot be read.") from None
    if "word/document.xml" not in names:
        raise WrongType("This is an archive but not a DOCX: it has no word/document.xml.")
    if unpacked > _MAX_UNPACKED:
        raise UnreadableDocument(f"The DOCX unpacks to more than {_MAX_UNPACKED:,} bytes.")
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
        raise WrongType("Documents are PDF, DOCX or plain text in UTF-8; this one has NUL bytes.")
    return text


_CHUNK_LENGTH = 350  # characters, approximately
_MAX_CHUNKS = 2_000
_SENTENCE = re.compile(r"(?<=[.!?。！？])[\"'»”)]*\s+(?=\S)|(?<=[。！？])")
_MAX_SENTENCE = 400  # characters; a longer one is cut


def sentences(text: str) -> list[str]:
    """Return the sentences of a text in order, each on one line."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        for part in _SENTENCE.split(" ".join(paragraph.split())):
            found += (part[at : at + _MAX_SENTENCE] for at in range(0, len(part), _MAX_SENTENCE))
    return [each.strip() for each in found if each.strip()]


def chunks(text: str) -> list[str]:
    """Split a text into chunks, in order."""
    return list(_pieces(text))[:_MAX_CHUNKS]


def _pieces(text: str) -> Iterator[str]:
    piece: list[str] = []
    length = 0
    for sentence in sentences(text):
        if piece and length + len(sentence) > _CHUNK_LENGTH:
            yield " ".join(piece)
            piece, length = [], 0
        piece.append(sentence)
        length += len(sentence) + 1
    if piece:
        yield " ".join(piece)
