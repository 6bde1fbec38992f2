"""Extracts the headings, text and tables of PDF, DOCX, PPTX and plain text documents, as chunks.

At upload only the signature is looked at (`media_type`): nothing is parsed in the service. A job calls
`extract` in a limited process. It refuses what is encrypted, broken or not made to be read, with a reason
for the document's user; what no rule foresees ends at the limits of the process. Chunks are whole sentences,
about a paragraph each, or a table; they are searched and quoted. Each knows the section that it belongs to:
a heading is never part of a sentence.

The module imports nothing of the service, since its process has little time and memory.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from typing import BinaryIO, TypedDict

from ephemera_services.slides.markdown_text import prose
from ephemera_services.slides.text_structure import Block, sentences, text_blocks

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
TEXT = "text/plain"

MAX_TEXT = 1_000_000
"""Characters that are read of a document; more than its chunks have."""
_BLOCK = 65_536  # bytes
_SPACES = re.compile(r"[ \t\u00a0]+")
_ARCHIVE = b"PK\x03\x04"
_CONTENTS = frozenset((
    "contents", "table of contents", "inhalt", "inhaltsverzeichnis", "table des matières", "sommaire",
    "índice", "contenido", "indice", "sommario", "spis treści", "obsah", "içindekiler", "περιεχόμενα",
    "содержание", "оглавление",
))  # fmt: skip
"""Headings of tables of contents."""
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"  # also what an encrypted DOCX begins with
_ACCEPTED = "Documents are PDF, DOCX, PPTX or plain text in UTF-8"


class UnreadableDocument(ValueError):
    """A document that cannot be used; the message is for its user."""


class WrongType(UnreadableDocument):
    """Not a PDF, DOCX, PPTX or text, or not what it claims to be."""


class Chunk(TypedDict):
    """A part of a document; plain data, which its process can return."""

    section: int
    """The number of its section in the document."""
    heading: str
    """Of its section; empty before the first one. A section of nothing else is a chunk with this text."""
    level: int
    text: str
    rows: list[list[str]] | None
    """The cells of a table, the header first."""


def media_type(content: bytes) -> str:
    """Return the type of a document by its signature, without parsing it; `UnreadableDocument` otherwise."""
    if not content:
        raise UnreadableDocument("The document is empty.")
    if content.startswith(b"%PDF-"):
        return PDF
    if content.startswith(_ARCHIVE):
        for part, kind in ((b"word/document.xml", DOCX), (b"ppt/presentation.xml", PPTX)):
            if part in content:  # an archive's names are not compressed
                return kind
        raise WrongType("This is an archive but not a DOCX or PPTX.")
    if content.startswith(_OLD_OFFICE):
        raise UnreadableDocument(
            "This is an encrypted or a legacy Office document; send a plain DOCX or PPTX."
        )
    _decode(content[:_BLOCK], codecs.getincrementaldecoder("utf-8-sig")())
    return TEXT


def extract(file: BinaryIO) -> list[Chunk]:
    """Return the chunks of a document; `UnreadableDocument` says why it has none."""
    beginning = file.read(5)
    file.seek(0)
    if beginning == b"%PDF-":
        from ephemera_services.slides.pdf_text import pdf_text

        blocks = _read("PDF", lambda: text_blocks(pdf_text(file)))
    elif beginning.startswith(_ARCHIVE):
        from ephemera_services.slides.office_text import office_blocks

        blocks = _read("document", lambda: office_blocks(file))
    else:
        blocks = list(_limited(text_blocks(prose("".join(_text(file))))))
    found = chunks(_without_contents(blocks))
    if not found:
        raise UnreadableDocument("The document contains no text; is it a scan?")
    return found


def _without_contents(blocks: list[Block]) -> list[Block]:
    """Without tables of contents, which say nothing that the sections do not."""
    headings = [at for at, block in enumerate(blocks) if block.level is not None or _names_contents(block)]
    sections = [blocks[start:end] for start, end in pairwise([0, *headings, len(blocks)])]
    return [block for section in sections if not _is_contents(section) for block in section]


def _is_contents(section: list[Block]) -> bool:
    """Whether it is named like one, and has no sentence, and no table but one of the numbers of pages."""
    return (
        bool(section)
        and _names_contents(section[0])
        and not any(
            block.text.endswith((".", "!", "?")) or not all(row[-1].isdecimal() for row in block.rows or ())
            for block in section[1:]
        )
    )


def _names_contents(block: Block) -> bool:
    return block.text.rstrip(" .:").casefold() in _CONTENTS


def _read(kind: str, blocks: Callable[[], Iterable[Block]]) -> list[Block]:
    """Read blocks; any exception means that the document is broken."""
    try:
        return list(_limited(blocks()))
    except (UnreadableDocument, MemoryError):
        raise
    except Exception as problem:  # the libraries raise anything for a broken file
        raise UnreadableDocument(f"The {kind} is broken and cannot be read.") from problem


def _limited(blocks: Iterable[Block]) -> Iterator[Block]:
    """Blocks without characters that cannot be stored, until there is too much text."""
    left = MAX_TEXT
    for block in blocks:
        rows = None if block.rows is None else [[_clean(cell) for cell in row] for row in block.rows]
        text = _clean(block.text)[:left]
        left -= len(text) + sum(len(cell) + 1 for row in rows or () for cell in row)
        if left <= 0:
            return
        if text or rows:
            yield Block(text, block.level, rows)


def _clean(text: str) -> str:
    return _SPACES.sub(" ", text.replace("\x00", "")).encode(errors="replace").decode().strip()


def _text(file: BinaryIO) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    left = MAX_TEXT
    while block := file.read(_BLOCK):
        text = _decode(block, decoder)
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return
    yield _decode(b"", decoder, final=True)


def _decode(block: bytes, decoder: codecs.IncrementalDecoder, *, final: bool = False) -> str:
    try:
        text = decoder.decode(block, final)
    except UnicodeDecodeError:
        raise WrongType(f"{_ACCEPTED}.") from None
    if "\x00" in text:
        raise WrongType(f"{_ACCEPTED}; this one has NUL bytes.")
    return text


_CHUNK_LENGTH = 350  # characters, approximately
_MAX_CHUNKS = 2_000
MAX_HEADING = 160
"""Characters of a heading; longer lines are text."""


def chunks(blocks: Iterable[Block]) -> list[Chunk]:
    """Split the blocks of a document into chunks, in order."""
    return list(islice(_chunks(blocks), _MAX_CHUNKS))


def _chunks(blocks: Iterable[Block]) -> Iterator[Chunk]:
    section, heading, level, empty = 0, "", 0, False
    texts: list[str] = []

    def chunk(text: str, rows: list[list[str]] | None = None) -> Chunk:
        return Chunk(section=section, heading=heading, level=level, text=text, rows=rows)

    for block in [*blocks, Block("", 0)]:
        if block.level is None and block.rows is None:
            texts.append(block.text)
            continue
        pieces = [chunk(piece) for piece in _pieces(texts)]
        yield from pieces
        texts, empty = [], empty and not pieces
        if block.rows is not None:
            yield chunk("\n".join(" | ".join(row) for row in block.rows), block.rows)
            empty = False
        else:
            if empty:
                yield chunk(heading)
            section, heading, level, empty = section + 1, block.text[:MAX_HEADING], block.level or 0, True


def _pieces(paragraphs: Iterable[str]) -> Iterator[str]:
    """Whole sentences, about as many as a paragraph has; a blank line is between paragraphs."""
    piece, length = "", 0
    for paragraph in paragraphs:
        separator = "\n\n"
        for sentence in sentences(paragraph):
            if piece and length + len(sentence) > _CHUNK_LENGTH:
                yield piece
                piece, length = "", 0
            piece = f"{piece}{separator}{sentence}" if piece else sentence
            length, separator = length + len(sentence) + 1, " "
    if piece:
        yield piece
