"""Reads the headings, paragraphs and tables of DOCX and PPTX: archives of XML, streamed and never a tree.

Only the parts with text are unpacked, and of these no more than the limits below. A part is counted by the
bytes that it really unpacks to, not by what the archive says. Document type definitions, which entity bombs
need, are refused; Office never writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile

from ephemera_services.slides.document_text import UnreadableDocument, WrongType
from ephemera_services.slides.text_structure import Block

_MAX_ENTRIES = 4_000  # files in the archive
_MAX_SLIDES = 1_000
_MAX_UNPACKED = 32_000_000  # bytes of the parts with text together
_MAX_RATIO = 100  # bytes per compressed byte, of a part above the next limit
_ANY_RATIO_BELOW = 1_000_000  # bytes
_MAX_ELEMENTS = 1_000_000
_MAX_DEPTH = 200
_MAX_ROWS = 500  # of a table
_MAX_CELLS = 30  # of a row
_BLOCK = 65_536  # bytes

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main "
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main "
_STRICT_WORD = "http://purl.oclc.org/ooxml/wordprocessingml/main "
_STRICT_DRAWING = "http://purl.oclc.org/ooxml/drawingml/main "
_NAMESPACES = (_WORD, _DRAWING, _STRICT_WORD, _STRICT_DRAWING)
_PARAGRAPHS = {f"{namespace}p" for namespace in _NAMESPACES}
_TEXTS = {f"{namespace}t" for namespace in _NAMESPACES}
_SPACES = {f"{namespace}{name}" for namespace in _NAMESPACES for name in ("tab", "br", "cr")}
_TABLES = {f"{namespace}tbl" for namespace in _NAMESPACES}
_ROWS = {f"{namespace}tr" for namespace in _NAMESPACES}
_CELLS = {f"{namespace}tc" for namespace in _NAMESPACES}
_STYLES = {f"{namespace}pStyle" for namespace in _NAMESPACES}
_OUTLINE_LEVELS = {f"{namespace}outlineLvl" for namespace in _NAMESPACES}
_SHAPE, _PLACEHOLDER = " sp", " ph"  # of PresentationML, in either of its namespaces
_HEADING_STYLE = re.compile(r"heading ([1-9])", re.IGNORECASE)
_CONTENTS_STYLE = re.compile(r"toc (?:heading|[1-9])", re.IGNORECASE)
_CONTENTS = -1  # the level of what is left out: a table of contents
_FALLBACK = "http://schemas.openxmlformats.org/markup-compatibility/2006 Fallback"  # repeats its Choice
_STYLE_PART = "word/styles.xml"
_SLIDE = re.compile(r"ppt/slides/slide(\d{1,6})\.xml")


def office_blocks(file: BinaryIO) -> Iterator[Block]:
    """The headings, paragraphs and tables of a DOCX, or of the slides of a PPTX, in order."""
    try:
        archive = ZipFile(file)
    except BadZipFile:
        raise UnreadableDocument("The document is broken and cannot be read.") from None
    names = archive.namelist()
    if len(names) > _MAX_ENTRIES:
        raise UnreadableDocument(f"The document's archive has more than {_MAX_ENTRIES:,} files.")
    text = _BlockReader()
    if _STYLE_PART in names:
        styles = _StyleReader()
        for _ in styles.read(_unpack(archive, _STYLE_PART, styles)):
            pass
        text.heading_levels = styles.levels
    for part in _parts(names):
        yield from text.read(_unpack(archive, part, text))


def _parts(names: list[str]) -> list[str]:
    """The names of the parts with text."""
    if "word/document.xml" in names:
        return ["word/document.xml"]
    slides = sorted((int(found[1]), found[0]) for found in map(_SLIDE.fullmatch, names) if found)
    if not slides or "ppt/presentation.xml" not in names:
        raise WrongType("This is an archive but not a DOCX or PPTX.")
    if len(slides) > _MAX_SLIDES:
        raise UnreadableDocument(f"The PPTX has more than {_MAX_SLIDES:,} slides.")
    return [name for _, name in slides]


def _unpack(archive: ZipFile, name: str, text: _XmlReader) -> Iterator[bytes]:
    part, unpacked = archive.getinfo(name), 0
    _check_ratio(part.file_size, part.compress_size)  # what it says, and below what it is
    if part.flag_bits & 1:
        raise UnreadableDocument("The document is encrypted; send one without a password.")
    with archive.open(part) as packed:
        while block := packed.read(_BLOCK):
            unpacked += len(block)
            text.unpacked += len(block)
            if text.unpacked > _MAX_UNPACKED:
                raise UnreadableDocument(
                    f"The document unpacks to more than {_MAX_UNPACKED:,} bytes of text."
                )
            _check_ratio(unpacked, part.compress_size)
            yield block


def _check_ratio(unpacked: int, packed: int) -> None:
    if unpacked > max(_ANY_RATIO_BELOW, packed * _MAX_RATIO):
        raise UnreadableDocument(
            f"The document unpacks to more than {_MAX_RATIO} times its size; it has hardly any content."
        )


class _XmlReader:
    """Reads parts of an archive as streams of XML, within limits."""

    def __init__(self) -> None:
        self.unpacked = 0
        self._elements = 0
        self._depth = 0
        self._done: list[Block] = []

    def read(self, blocks: Iterator[bytes]) -> Iterator[Block]:
        """What is found in one part, as soon as it is complete."""
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler = self._enter
        parser.EndElementHandler = self._leave
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = _refuse_doctype
        self._depth = 0
        for block in blocks:
            parser.Parse(block, False)
            yield from self._done
            self._done.clear()
        parser.Parse(b"", True)
        yield from self._done
        self._done.clear()

    def _enter(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        self._depth += 1
        if self._elements > _MAX_ELEMENTS:
            raise UnreadableDocument(f"The document has more than {_MAX_ELEMENTS:,} XML elements.")
        if self._depth > _MAX_DEPTH:
            raise UnreadableDocument(f"The document's XML is nested more than {_MAX_DEPTH} levels deep.")
        self._start(name, attributes)

    def _leave(self, name: str) -> None:
        self._end(name)
        self._depth -= 1

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def _end(self, name: str) -> None:
        """An element ends."""

    def _text(self, text: str) -> None:
        """Characters between elements."""


class _StyleReader(_XmlReader):
    """The styles of headings and contents: their ids depend on the editor's language, their names do not."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: dict[str, int] = {}
        self._style = ""

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        if local == "style":
            self._style = _attribute(attributes, "styleId")
        elif local == "name" and self._style:
            value = _attribute(attributes, "val")
            if (heading := _HEADING_STYLE.fullmatch(value)) is not None:
                self.levels[self._style] = int(heading[1])
            elif value.lower() == "title":
                self.levels[self._style] = 0
            elif _CONTENTS_STYLE.fullmatch(value):
                self.levels[self._style] = _CONTENTS


class _BlockReader(_XmlReader):
    """Collects headings, paragraphs and tables; a table within a table is text of its cell."""

    def __init__(self) -> None:
        super().__init__()
        self.heading_levels: dict[str, int] = {}
        self._skipping: int | None = None  # the depth of an element that is skipped
        self._in_text = False
        self._paragraph: list[str] = []
        self._level: int | None = None
        self._placeholder = ""  # the type of the slide's placeholder that is being read
        self._tables = 0  # that are open
        self._rows: list[list[str]] = []

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name in _TEXTS:
            self._in_text = True
        elif name in _SPACES:
            self._paragraph.append(" ")
        elif name in _STYLES:
            self._level = self.heading_levels.get(_attribute(attributes, "val"), self._level)
        elif name in _OUTLINE_LEVELS and (value := _attribute(attributes, "val")).isdecimal():
            self._level = min(int(value), 8) + 1 if int(value) < 9 else self._level
        elif name.endswith(_PLACEHOLDER):
            self._placeholder = attributes.get("type", "")
        elif name == _FALLBACK and self._skipping is None:
            self._skipping = self._depth
        else:
            self._start_table(name)

    def _start_table(self, name: str) -> None:
        if name in _TABLES:
            self._tables += 1
        elif self._tables == 1 and name in _ROWS and len(self._rows) < _MAX_ROWS:
            self._rows.append([])
        elif self._tables == 1 and name in _CELLS and self._rows and len(self._rows[-1]) < _MAX_CELLS:
            self._rows[-1].append("")

    def _end(self, name: str) -> None:
        if name in _TEXTS:
            self._in_text = False
        elif name in _PARAGRAPHS:
            self._end_paragraph()
        elif name in _TABLES:
            self._tables -= 1
            if self._tables == 0 and self._rows:
                self._done.append(Block("", rows=self._rows))
                self._rows = []
        elif name.endswith(_SHAPE):
            self._placeholder = ""
        if self._skipping == self._depth:
            self._skipping = None

    def _end_paragraph(self) -> None:
        text, level = "".join(self._paragraph).strip(), self._level
        if self._placeholder in ("title", "ctrTitle"):
            level = 1
        self._paragraph.clear()
        self._level = None
        if not text or level == _CONTENTS or self._placeholder in ("sldNum", "ftr", "dt"):
            return
        if self._tables and self._rows and self._rows[-1]:
            self._rows[-1][-1] = f"{self._rows[-1][-1]} {text}".strip()
        else:
            self._done.append(Block(text, level))

    def _text(self, text: str) -> None:
        if self._in_text and self._skipping is None:
            self._paragraph.append(text)


def _attribute(attributes: dict[str, str], name: str) -> str:
    """The value of an attribute, whatever its namespace."""
    return next((value for key, value in attributes.items() if key.rpartition(" ")[2] == name), "")


def _refuse_doctype(*_: object) -> None:
    raise UnreadableDocument("The document's XML has a document type definition, which is not allowed.")
