"""Where everything on a slide is, and how large: one model that the PPTX and the PDF both draw.

A slide is 960 x 540 points (16:9) with margins of 60. A layout has slots, which are the placeholders of the
PPTX's layout of that name, and shapes behind them. `place` puts a slide's text into the slots, each at the
largest size at which it fits. A few short lines are large, with more space between them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from ephemera_services.slides.chart_data import chart_data
from ephemera_services.slides.deck import MAX_TABLE_ROWS, Layout, SlideContent, Table, more_rows, printable
from ephemera_services.slides.table_numbers import are_figures
from ephemera_services.slides.text_fit import LINE, Fitted, Measure, fit, measure_for, wrap
from ephemera_services.slides.themes import Theme

WIDTH, HEIGHT = 960, 540
INDENT = 24
"""The space before the text of a bullet."""
_WIDE_GAP = 1.3
"""The widest gap between paragraphs, in font sizes."""
_AIRY = 1.5
"""How much higher the rows of a short table may be."""
Colour = Literal["ink", "muted", "on_primary", "accent_text", "accent", "primary", "tint", "background"]
Marker = Literal["none", "bullet", "number"]


class Box(NamedTuple):
    """A rectangle, in points from the upper left corner."""

    x: float
    y: float
    width: float
    height: float


class Slot(NamedTuple):
    """A place for text: a placeholder of a layout."""

    number: int
    """The index of the placeholder."""
    kind: str
    """The placeholder's type in a PPTX."""
    name: str
    box: Box
    sizes: tuple[float, float]
    """The largest and the smallest font size."""
    colour: Colour = "ink"
    bold: bool = False
    marker: Marker = "none"
    bottom: bool = False
    """Whether text is at the bottom of the box."""
    gap: float = 0.0
    """Between paragraphs, in font sizes."""


class Shape(NamedTuple):
    """A rectangle of one colour."""

    box: Box
    colour: Colour


class PlacedText(NamedTuple):
    """A slot with text that fits it."""

    slot: Slot
    fitted: Fitted
    first_number: int = 1
    """Of the first paragraph, if they are numbered."""


class PlacedTable(NamedTuple):
    """A table whose cells fit: `lines[row][column]`, the header first."""

    box: Box
    size: float
    widths: list[float]
    heights: list[float]
    lines: list[list[list[str]]]
    are_figures: list[bool]
    """Whether a column is aligned on the right."""


class PlacedSlide(NamedTuple):
    """Everything that is on a slide."""

    texts: list[PlacedText]
    table: PlacedTable | None


_TITLE = Slot(0, "title", "Title", Box(60, 34, 780, 82), (36, 18), "ink", bold=True, bottom=True)
_BODY = Box(60, 158, 840, 318)
_LEFT, _RIGHT = Box(60, 158, 400, 318), Box(500, 158, 400, 318)
_COVER = Slot(0, "ctrTitle", "Title", Box(84, 130, 660, 172), (52, 20), "on_primary", bold=True, bottom=True)
CHART = Box(60, 146, 840, 334)
SOURCES = Slot(11, "ftr", "Sources", Box(60, 500, 700, 17), (12, 9), "muted")
NUMBER = Slot(12, "sldNum", "Slide number", Box(820, 500, 80, 17), (12, 12), "muted")


def _body(number: int, box: Box, marker: Marker = "bullet", name: str = "Text") -> Slot:
    return Slot(number, "body", name, box, (30, 11), marker=marker, gap=0.7)


def _heading(number: int, name: str, x: float) -> Slot:
    return Slot(number, "body", name, Box(x, 146, 400, 50), (22, 12), "accent_text", bold=True, bottom=True)


SLOTS: dict[Layout, list[Slot]] = {
    "title": [
        _COVER,
        Slot(1, "subTitle", "Subtitle", Box(84, 330, 660, 96), (24, 12), "on_primary"),
    ],
    "agenda": [_TITLE, _body(1, _LEFT, "number", "Agenda"), _body(2, _RIGHT, "number", "Agenda, continued")],
    "section": [
        Slot(0, "title", "Title", Box(60, 170, 780, 110), (44, 20), "ink", bold=True, bottom=True),
        Slot(1, "body", "Summary", Box(60, 308, 780, 120), (24, 12), "muted"),
    ],
    "bullets": [_TITLE, _body(1, _BODY)],
    "two_columns": [
        _TITLE,
        _heading(1, "Left heading", 60),
        _body(2, Box(60, 212, 400, 264), name="Left text"),
        _heading(3, "Right heading", 500),
        _body(4, Box(500, 212, 400, 264), name="Right text"),
    ],
    "table": [
        _TITLE,
        Slot(1, "tbl", "Table", Box(60, 154, 840, 316), (24, 9)),
        Slot(2, "body", "Remark", Box(60, 474, 840, 18), (12, 9), "muted"),
    ],
    "chart": [_TITLE, Slot(1, "chart", "Chart", CHART, (14, 9))],
    "closing": [
        Slot(0, "title", "Title", Box(84, 84, 660, 84), (38, 18), "on_primary", bold=True, bottom=True),
        Slot(1, "body", "Text", Box(84, 206, 660, 264), (28, 10), "on_primary", marker="bullet", gap=0.6),
    ],
}  # fmt: skip

_COVER_SHAPES = [
    Shape(Box(0, 0, WIDTH, HEIGHT), "primary"),
    Shape(Box(0, 0, 14, HEIGHT), "accent"),
]
_PLAIN_SHAPES = [Shape(Box(60, 122, 56, 4), "accent")]
SHAPES: dict[Layout, list[Shape]] = {
    "title": [*_COVER_SHAPES, Shape(Box(84, 312, 72, 4), "accent")],
    "agenda": _PLAIN_SHAPES,
    "section": [Shape(Box(0, 0, 14, HEIGHT), "primary"), Shape(Box(60, 290, 72, 4), "accent")],
    "bullets": _PLAIN_SHAPES,
    "two_columns": [*_PLAIN_SHAPES, Shape(Box(479, 158, 1, 310), "tint")],
    "table": _PLAIN_SHAPES,
    "chart": _PLAIN_SHAPES,
    "closing": [*_COVER_SHAPES, Shape(Box(84, 178, 72, 4), "accent")],
}
LOGO: dict[Layout, Box] = {
    "title": Box(776, 60, 124, 60),
    "closing": Box(776, 60, 124, 60),
}
SMALL_LOGO = Box(852, 44, 48, 48)
NAMES: dict[Layout, str] = {
    "title": "Title",
    "agenda": "Agenda",
    "section": "Section",
    "bullets": "Bullets",
    "two_columns": "Two columns",
    "table": "Table",
    "chart": "Chart",
    "closing": "Closing",
}


def measure_of(slot: Slot, theme: Theme) -> Measure:
    """The measure of a slot's text."""
    return measure_for(theme.heading_font if slot.bold else theme.body_font, bold=slot.bold)


def drawable(slide: SlideContent) -> SlideContent:
    """A slide with a layout that shows what it has: what is not a chart is a table, or bullets."""
    if slide.layout not in ("table", "chart") or (slide.table is not None and slide.layout == "table"):
        return slide
    if slide.table is None:
        return msgspec.structs.replace(slide, layout="bullets")
    return slide if chart_data(slide.table) else msgspec.structs.replace(slide, layout="table")


def place(slide: SlideContent, theme: Theme) -> PlacedSlide:
    """Fit a slide's text into the slots of its layout."""
    title, *others = SLOTS[slide.layout]
    texts = [_fitted(title, [slide.title], theme)]
    texts += _columns([each for each in _filled(slide, others) if any(each[1])], theme)
    if slide.sources and slide.layout not in ("title", "closing"):
        texts.append(_fitted(SOURCES, [", ".join(slide.sources)], theme))
    table = None
    if slide.layout == "table" and slide.table is not None:
        table = _place_table(slide.table, others[0], theme)
    return PlacedSlide(texts, table)


def _filled(slide: SlideContent, slots: list[Slot]) -> list[tuple[Slot, list[str], int]]:
    """The slots besides the title, with their paragraphs and the number of the first."""
    if slide.layout == "agenda":
        return _agenda(slide.bullets, slots)
    if slide.layout == "two_columns":
        columns = slide.columns[:2]
        texts = [text for column in columns for text in ([column.heading], column.bullets)]
        return [(slot, paragraphs, 1) for slot, paragraphs in zip(slots, texts, strict=False)]
    if slide.layout == "table":
        return [(slots[1], [more_rows(slide.table)] if slide.table else [], 1)]
    if slide.layout == "chart":
        return []
    bullets = slide.bullets[:1] if slide.layout in ("title", "section") else slide.bullets
    if slide.layout == "closing":
        bullets = [*bullets, *slide.sources]
    return [(slots[0], bullets, 1)]


def _columns(filled: list[tuple[Slot, list[str], int]], theme: Theme) -> list[PlacedText]:
    """The texts, those of columns in one size: that of the longest."""
    texts = [_fitted(slot, paragraphs, theme, first) for slot, paragraphs, first in filled]
    if len(texts) < 2:
        return [_spread(text) for text in texts]
    size = {
        marker: min(text.fitted.size for text in texts if text.slot.marker == marker)
        for marker in {text.slot.marker for text in texts}
    }
    return [
        _fitted(slot._replace(sizes=(size[slot.marker], slot.sizes[1])), paragraphs, theme, first)
        for slot, paragraphs, first in filled
    ]


def _spread(text: PlacedText) -> PlacedText:
    """More space between paragraphs, while their box has room."""
    slot, (size, lines) = text.slot, text.fitted
    gaps = len(lines) - 1
    if slot.marker == "none" or gaps < 1:
        return text
    free = slot.box.height - sum(map(len, lines)) * size * LINE
    return text._replace(slot=slot._replace(gap=min(max(slot.gap, free / gaps / size * 0.95), _WIDE_GAP)))


def _agenda(items: list[str], slots: list[Slot]) -> list[tuple[Slot, list[str], int]]:
    """One wide column, or two if there are many items."""
    if len(items) <= 6:
        return [(slots[0]._replace(box=_BODY), items, 1)]
    half = (len(items) + 1) // 2
    return [(slots[0], items[:half], 1), (slots[1], items[half:], half + 1)]


def _fitted(slot: Slot, paragraphs: list[str], theme: Theme, first: int = 1) -> PlacedText:
    indent = 0 if slot.marker == "none" else INDENT + (8 if slot.marker == "number" else 0)
    size = (slot.box.width - indent, slot.box.height)
    wanted = [printable(paragraph) for paragraph in paragraphs if paragraph]
    fitted = fit(wanted, size, slot.sizes, measure_of(slot, theme), gap=slot.gap)
    if slot.number == 0 and wanted:
        fitted = _without_widow(fitted, wanted, size[0], measure_of(slot, theme))
    return PlacedText(slot, fitted, first)


def _without_widow(fitted: Fitted, title: list[str], width: float, measure: Measure) -> Fitted:
    """A title a little smaller, if its last line then is not a single word."""
    (lines,) = fitted.lines or [[""]]
    if len(lines) < 2 or " " in lines[-1]:
        return fitted
    for percent in range(98, 80, -2):
        size = fitted.size * percent / 100
        shorter = wrap(title[0], width, size, measure)
        if len(shorter) < len(lines):
            return Fitted(round(size, 1), [shorter])
    return fitted


CELL = (12, 8)
"""The space inside of a cell: left and right, above and below."""


def _place_table(table: Table, slot: Slot, theme: Theme) -> PlacedTable:
    """Columns as wide as their text wants, rows as high as it needs, at the largest size that fits."""
    rows = [[printable(cell) for cell in row] for row in (table.header, *table.rows[:MAX_TABLE_ROWS])]
    size, smallest = slot.sizes
    while True:
        placed = _table_at(rows, slot.box, size, theme, None)
        if (needed := sum(placed.heights)) <= slot.box.height:
            larger = min(slot.box.height / needed, _AIRY)
            return placed._replace(heights=[height * larger for height in placed.heights])
        if size <= smallest:
            room = slot.box.height / len(rows)
            return _table_at(rows, slot.box, size, theme, room)
        size -= 1


def _table_at(rows: list[list[str]], box: Box, size: float, theme: Theme, room: float | None) -> PlacedTable:
    """The table at a size; with `room`, no row is higher than that, and its text is cut."""
    widths = _column_widths(rows, box.width, size, theme)
    lines = []
    for number, row in enumerate(rows):
        measure = measure_for(theme.body_font, bold=number == 0)
        height = 10_000.0 if room is None else room - 2 * CELL[1]
        lines.append(
            [
                fit([cell], (width - 2 * CELL[0], height), (size, size), measure).lines[0]
                for cell, width in zip(row, widths, strict=True)
            ]
        )
    heights = [max(map(len, row)) * size * LINE + 2 * CELL[1] for row in lines]
    sides = [are_figures(rows[1:], column) for column in range(len(rows[0]))]
    return PlacedTable(box, size, widths, heights, lines, sides)


def _column_widths(rows: list[list[str]], width: float, size: float, theme: Theme) -> list[float]:
    """The width in proportion to the widest cell of each column, none of them tiny."""
    bold = measure_for(theme.body_font, bold=True)
    wanted = [max(bold.width(row[at], size) for row in rows) + 2 * CELL[0] for at in range(len(rows[0]))]
    bounded = [min(max(each, width / len(wanted) / 2), width * 0.6) for each in wanted]
    return [each * width / sum(bounded) for each in bounded]
