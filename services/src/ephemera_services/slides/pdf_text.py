"""Extracts the text of PDFs, with marks of Markdown for headings and tabs between the cells of tables.

A PDF says only what is drawn where. Lines in a larger or bolder font than most are headings. Text with wide
gaps, in as many parts as the lines around it, is a row of a table, if there are numbers in it. What many
pages have at their edges is left out, and what a few have with the number of their page. A sentence goes on
over the end of a page.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ephemera_services.slides.document_text import MAX_HEADING, MAX_TEXT, UnreadableDocument

if TYPE_CHECKING:
    from pypdf import PageObject

_MAX_PAGES = 1_000
_MAX_PAGE_CONTENT = 20_000_000  # bytes of the content of all pages, unpacked
_NUMBER = re.compile(r"\d{1,5}")
_EDGE = 3  # lines of a page, at either end, that may be its header or footer
_RUNNING = 0.4  # of all pages have it: even and odd pages may have different ones
_CHAPTER = 2  # pages have it, with their numbers
_LARGER = 1.12  # times the size of most text, and it is a heading
_LETTER = 0.5  # width of an average one, in font sizes
_GAP = 1.0  # between cells, in font sizes
_HEADER_GAP = 0.45  # between the names of columns, which may be as wide as their columns
_ALIGNED = 0.6  # font sizes between the beginnings of a column's cells
_BULLET = re.compile(r"[^\w\s(€$£%]")
_LIST_NUMBER = re.compile(r"\d{1,2}[.)]")
_MIN_ROWS = 3
_MAX_CELL = 60  # characters
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "\u00ad": "-"})


def pdf_text(file: BinaryIO) -> str:
    """The text of a PDF; `UnreadableDocument` says why there is none."""
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs the content of documents
    reader = PdfReader(file)
    if reader.is_encrypted:
        raise UnreadableDocument("The PDF is encrypted; send one without a password.")
    tree: Any = reader.root_object["/Pages"]
    claimed = tree["/Count"]  # counting many pages takes long
    if claimed > _MAX_PAGES or not 1 <= len(reader.pages) <= _MAX_PAGES:
        raise UnreadableDocument(f"The PDF must have 1 to {_MAX_PAGES:,} pages; split it.")
    pages = list(reader.pages)
    if sum(map(_content_length, pages)) > _MAX_PAGE_CONTENT:  # pages may share it, but each is interpreted
        raise UnreadableDocument(f"The PDF's pages have more than {_MAX_PAGE_CONTENT:,} bytes of content.")
    left, found = MAX_TEXT, []
    for page in pages:
        found.append(_page_lines(page))
        left -= sum(len(line.text) for line in found[-1])
        if left <= 0:
            break
    return "".join(_with_headings(_without_running_lines(found)))


class _Piece(NamedTuple):
    """Text that is drawn at once; positions are those of its beginning."""

    text: str
    size: float
    bold: bool
    x: float
    y: float
    follows: bool
    """Whether it belongs to the line of the piece before it."""


class _Line(NamedTuple):
    text: str
    size: float
    bold: bool
    cells: tuple[str, ...] = ()
    """Its parts with wide gaps between them."""
    places: tuple[float, ...] = ()
    """Where these begin."""
    pieces: tuple[_Piece, ...] = ()
    is_row: bool = False


def _page_lines(page: PageObject) -> list[_Line]:
    """The lines of a page, each with the size of its font."""
    lines, ended = [list[_Piece]()], False

    def visit(text: str, cm: Any, tm: Any, font: Any, size: float) -> None:
        nonlocal ended
        scale = abs(cm[3] * tm[3]) or abs(cm[1] * tm[1]) or 1.0
        bold = "bold" in str((font or {}).get("/BaseFont", "")).lower()
        x, y = (tm[4] * cm[at] + tm[5] * cm[at + 2] + cm[at + 4] for at in (0, 1))
        for number, part in enumerate(text.translate(_LIGATURES).split("\n")):
            ended = ended or number > 0
            if part.strip():
                piece = _Piece(part, size * scale, bold, x, y, not ended)
                if ended and not (lines[-1] and _is_beside(lines[-1][-1], piece)):
                    lines.append([])
                lines[-1].append(piece)
                ended = False

    page.extract_text(visitor_text=visit)
    return _with_rows([_line(line) for line in lines if line])


def _is_beside(before: _Piece, piece: _Piece) -> bool:
    """Whether a piece is on the line of the one before it, and to the right of it."""
    return abs(piece.y - before.y) < 0.3 * piece.size and piece.x > before.x


def _line(pieces: list[_Piece]) -> _Line:
    cells, places = _cells(pieces, _GAP)
    if len(cells) == 2 and _BULLET.fullmatch(cells[0]):
        cells, places, pieces = (f"- {cells[1]}",), places[1:], pieces[1:]  # it may be in a larger font
    elif len(cells) == 2 and _LIST_NUMBER.fullmatch(cells[0]):
        cells, places = (" ".join(cells),), places[:1]
    size = round(max(piece.size for piece in pieces), 1)
    bold = all(piece.bold for piece in pieces)
    return _Line(" ".join(cells), size, bold, cells, places, tuple(pieces))


def _cells(pieces: Sequence[_Piece], gap: float) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The text between gaps of this many font sizes, and where each begins."""
    cells, places = [pieces[0].text], [pieces[0].x]
    for before, piece in pairwise(pieces):
        end = before.x + len(before.text.strip()) * _LETTER * before.size
        if _is_beside(before, piece) and piece.x - end > gap * piece.size:
            cells.append(piece.text)
            places.append(piece.x)
        else:
            cells[-1] += piece.text if piece.follows else f" {piece.text}"
    return tuple(cell.strip() for cell in cells), tuple(places)


def _with_rows(lines: list[_Line]) -> list[_Line]:
    """The lines of a page, with tabs between the cells of tables."""
    found: list[_Line] = []
    for count, group in groupby(lines, key=lambda line: len(line.cells)):
        rows = list(group)
        if count > 1 and _is_table([row.cells for row in rows]):
            if found and (header := _header(found[-1], rows)):
                found[-1:] = [header]
            rows = [row._replace(text="\t".join(row.cells), is_row=True) for row in rows]
        found += rows
    return found


def _header(line: _Line, rows: list[_Line]) -> _Line | None:
    """The line above the rows of a table, if it has a name where each of their columns begins."""
    cells, places = _cells(line.pieces, _HEADER_GAP)
    if line.is_row or len(cells) != len(rows[0].cells) or len(cells) == len(line.cells):
        return None
    apart = [min(abs(place - row.places[at]) for row in rows) for at, place in enumerate(places)]
    return line._replace(text="\t".join(cells), is_row=True) if max(apart) < _ALIGNED * line.size else None


def _is_table(rows: list[tuple[str, ...]]) -> bool:
    """Whether lines are a table: short cells, and numbers in half of a column below the first row."""
    if len(rows) < _MIN_ROWS or any(len(cell) > _MAX_CELL for row in rows for cell in row):
        return False
    columns = list(zip(*rows[1:], strict=True))[1:]
    return any(
        sum(_NUMBER.search(cell) is not None for cell in column) * 2 >= len(column) for column in columns
    )


def _without_running_lines(pages: list[list[_Line]]) -> list[list[_Line]]:
    """Pages without headers and footers: lines at the edges of many pages, alike but for their number.

    A chapter's may be on two pages only, but counts them, and is no larger than most text.
    """
    edges, counting = Counter[str](), Counter[str]()
    (body, _), _ = _fonts(pages).most_common(1)[0] if any(pages) else ((0.0, False), 0)
    for number, page in enumerate(pages):
        edge = _edge(page)
        edges.update({key for line in edge for key in _running_keys(line.text, number)})
        small = (line.text for line in edge if line.size <= body and not line.bold)
        counting.update({key for text in small for key in _running_keys(text, number) if _counts_pages(key)})
    least = max(len(pages) * _RUNNING, 2)
    running = {key for key, count in edges.items() if count >= least}
    running |= {key for key, count in counting.items() if count >= _CHAPTER}
    kept = []
    for number, page in enumerate(pages):
        repeated = {id(line) for line in _edge(page) if running & _running_keys(line.text, number)}
        kept.append([line for line in page if id(line) not in repeated])
    return kept


def _edge(page: list[_Line]) -> list[_Line]:
    edge = page[:_EDGE] + page[-_EDGE:]
    return [line for line in edge if not line.is_row and len(line.text) <= MAX_HEADING]


def _counts_pages(key: str) -> bool:
    """Whether a line begins or ends with a number that is counted from that of the page."""
    return key[:1] == "\0" or key[-1:] == "\0"


def _running_keys(text: str, page: int) -> set[str]:
    """The line as it is, and with its first or its last number counted from that of the page."""
    numbers = list(_NUMBER.finditer(text))
    relative = (
        f"{text[: found.start()]}\0{int(found[0]) - page}\0{text[found.end() :]}"
        for found in (*numbers[:1], *numbers[-1:])
    )
    return {text, *relative}


def _with_headings(pages: list[list[_Line]]) -> Iterator[str]:
    """The text of pages; lines in a larger or bolder font than most are marked as headings."""
    letters = _fonts(pages)
    (body, body_bold), _ = letters.most_common(1)[0] if letters else ((0.0, False), 0)
    larger = sorted({size for size, _ in letters if size > body * _LARGER}, reverse=True)[:3]
    for page in pages:
        text = "\n".join(_marked(line, body, larger, bold=body_bold) for line in page)
        yield f"\n{text}" if text.lstrip()[:1].islower() else f"\n\n{text}"  # a sentence may go on


def _fonts(pages: list[list[_Line]]) -> Counter[tuple[float, bool]]:
    """How many letters there are of each size, bold or not."""
    letters: Counter[tuple[float, bool]] = Counter()
    for line in (line for page in pages for line in page):
        letters[line.size, line.bold] += len(line.text)
    return letters


def _marked(line: _Line, body: float, larger: list[float], *, bold: bool) -> str:
    if line.is_row:
        return line.text
    emphasized = line.bold and not bold and line.size >= body
    if not line.text or len(line.text) > MAX_HEADING or not (line.size > body * _LARGER or emphasized):
        return "" if line.text.isdecimal() else line.text  # the number of a page
    level = larger.index(line.size) + 1 if line.size in larger else len(larger) + 1
    return f"\n{'#' * level} {line.text}\n"


def _content_length(page: PageObject) -> int:
    contents: Any = page["/Contents"].get_object() if "/Contents" in page else []
    streams = contents if isinstance(contents, list) else [contents]
    return sum(len(stream.get_object().get_data()) for stream in streams)
