"""PDF files of presentations, by reportlab, with embedded fonts; they look like the PPTX files."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from ephemera_services.slides.chart_data import ChartData, axis_of, chart_data, decimals
from ephemera_services.slides.deck import SlideContent, printable
from ephemera_services.slides.slide_layout import (
    CELL,
    CHART,
    HEIGHT,
    INDENT,
    LOGO,
    NUMBER,
    SHAPES,
    SMALL_LOGO,
    WIDTH,
    Box,
    PlacedTable,
    PlacedText,
    drawable,
    place,
)
from ephemera_services.slides.text_fit import BOLD, LINE, REGULAR, Measure, runs, wrap
from ephemera_services.slides.themes import Theme

_ASCENT = 0.95  # of a line's first baseline, in font sizes


def render_pdf(title: str, slides: Sequence[SlideContent], theme: Theme) -> bytes:
    """Render a PDF with one page per slide."""
    from reportlab.pdfgen.canvas import Canvas

    file = BytesIO()
    canvas = Canvas(file, pagesize=(WIDTH, HEIGHT), pageCompression=1)
    canvas.setTitle(printable(title)[:255])
    canvas.setCreator("Ephemera slides")
    for number, slide in enumerate(map(drawable, slides), 1):
        canvas.bookmarkPage(str(number))
        canvas.addOutlineEntry(printable(slide.title)[:200] or str(number), str(number))
        _Page(canvas, theme).draw(slide, number)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


class _Page:
    """One page; y is from the top, as in the layout."""

    def __init__(self, canvas: Any, theme: Theme) -> None:
        self._canvas = canvas
        self._theme = theme

    def draw(self, slide: SlideContent, number: int) -> None:
        """Draw a slide."""
        self._fill(Box(0, 0, WIDTH, HEIGHT), self._theme.background)
        for shape in SHAPES[slide.layout]:
            self._fill(shape.box, getattr(self._theme, shape.colour))
        self._logo(LOGO.get(slide.layout, SMALL_LOGO))
        placed = place(slide, self._theme)
        for text in placed.texts:
            self._text(text)
        if placed.table is not None:
            self._table(placed.table)
        if slide.layout == "chart" and slide.table is not None and (data := chart_data(slide.table)):
            _Chart(self, data, self._theme).draw(CHART)
        if slide.layout not in LOGO:
            right = NUMBER.box.x + NUMBER.box.width
            self.line(str(number), right, NUMBER.box.y, NUMBER.sizes[0], self._theme.muted, align="right")

    def _text(self, text: PlacedText) -> None:
        slot, (size, lines) = text.slot, text.fitted
        font, colour = BOLD if slot.bold else REGULAR, getattr(self._theme, slot.colour)
        height = (sum(map(len, lines)) * LINE + max(len(lines) - 1, 0) * slot.gap) * size
        y = slot.box.y + (slot.box.height - height if slot.bottom else 0)
        numbered = slot.marker == "number"
        indent = 0 if slot.marker == "none" else INDENT + (8 if numbered else 0)
        on_primary = slot.colour == "on_primary"
        marker_colour = self._theme.accent if on_primary else self._theme.accent_text
        for number, paragraph in enumerate(lines, text.first_number):
            if indent:
                marker = f"{number}." if numbered else "•"
                self.line(marker, slot.box.x, y, size, marker_colour, font=BOLD)
            for line in paragraph:
                self.line(line, slot.box.x + indent, y, size, colour, font=font)
                y += size * LINE
            y += size * slot.gap

    def _table(self, table: PlacedTable) -> None:
        theme, y = self._theme, table.box.y
        for number, (row, height) in enumerate(zip(table.lines, table.heights, strict=True)):
            if number == 0:
                self._fill(Box(table.box.x, y, table.box.width, height), theme.primary)
            elif number % 2 == 0:
                self._fill(Box(table.box.x, y, table.box.width, height), theme.tint)
            x = table.box.x
            for lines, width, right in zip(row, table.widths, table.are_figures, strict=True):
                side, align = (x + width - CELL[0], "right") if right else (x + CELL[0], "left")
                above = (height - len(lines) * table.size * LINE) / 2
                for at, line in enumerate(lines):
                    top = y + above + at * table.size * LINE
                    style = (theme.on_primary, BOLD) if number == 0 else (theme.ink, REGULAR)
                    self.line(line, side, top, table.size, style[0], font=style[1], align=align)
                x += width
            y += height

    def _logo(self, box: Box) -> None:
        from reportlab.lib.utils import ImageReader

        if self._theme.logo is None:
            return
        image = ImageReader(BytesIO(self._theme.logo))
        corner = (box.x, HEIGHT - box.y - box.height, box.width, box.height)
        self._canvas.drawImage(image, *corner, mask="auto", preserveAspectRatio=True, anchor="ne")

    def _fill(self, box: Box, colour: str) -> None:
        self._canvas.setFillColor(_colour(colour))
        self._canvas.rect(box.x, HEIGHT - box.y - box.height, box.width, box.height, stroke=0, fill=1)

    def bar(self, box: Box, colour: str) -> None:
        """A filled rectangle."""
        self._fill(box, colour)

    def rule(self, points: Sequence[tuple[float, float]], colour: str, width: float) -> None:
        """A line through points."""
        path = self._canvas.beginPath()
        path.moveTo(points[0][0], HEIGHT - points[0][1])
        for x, y in points[1:]:
            path.lineTo(x, HEIGHT - y)
        self._canvas.setStrokeColor(_colour(colour))
        self._canvas.setLineWidth(width)
        self._canvas.drawPath(path, stroke=1, fill=0)

    def line(
        self, text: str, x: float, y: float, size: float, colour: str, *, font: str = REGULAR,
        align: str = "left",
    ) -> None:  # fmt: skip
        """A line of text whose top is at y, left of, right of or centred at x."""
        text = printable(text)
        width = Measure(font, 1.0).width(text, size)
        x -= {"left": 0.0, "right": width, "centre": width / 2}[align]
        self._canvas.setFillColor(_colour(colour))
        for name, run in runs(text, font):
            self._canvas.setFont(name, size)
            self._canvas.drawString(x, HEIGHT - y - size * _ASCENT, run)
            x += self._canvas.stringWidth(run, name, size)


class _Chart:
    """Columns, or lines over time, with the same scale and colours as the PPTX's chart."""

    def __init__(self, page: _Page, data: ChartData, theme: Theme) -> None:
        self._page = page
        self._data = data
        self._theme = theme
        self._low, self._high, self._step = axis_of(data)

    def draw(self, box: Box) -> None:
        """Draw the chart in a box."""
        plot = Box(box.x + 56, box.y + 14, box.width - 64, box.height - 88)
        self._grid(plot)
        slot = plot.width / len(self._data.labels)
        for at, label in enumerate(self._data.labels):
            self._label(label, plot.x + (at + 0.5) * slot, plot.y + plot.height + 8, slot - 8)
        for number, series in enumerate(self._data.series):
            colour = self._theme.chart_colours[number]
            if self._data.is_time:
                self._line(series.values, plot, slot, number, colour)
            else:
                self._columns(series.values, plot, slot, number, colour)
        self._legend(box, box.y + box.height - 20)

    def _y(self, value: float, plot: Box) -> float:
        return plot.y + plot.height * (1 - (value - self._low) / (self._high - self._low))

    def _grid(self, plot: Box) -> None:
        value, digits = self._low, decimals([self._step], 6)
        while value <= self._high + self._step / 2:
            y = self._y(value, plot)
            self._page.bar(Box(plot.x, y, plot.width, 0.75), self._theme.tint)
            shown = self._data.shown(value, digits)
            self._page.line(shown, plot.x - 8, y - 8, 14, self._theme.muted, align="right")
            value += self._step

    def _columns(self, values: list[float], plot: Box, slot: float, number: int, colour: str) -> None:
        count = len(self._data.series)
        width = min(slot * 0.6 / count, 72)
        zero = self._y(max(self._low, 0), plot)
        for at, value in enumerate(values):
            x = plot.x + (at + 0.5) * slot + (number - count / 2) * width
            y = self._y(value, plot)
            self._page.bar(Box(x, min(y, zero), width, abs(zero - y)), colour)
            top = min(y, zero) - 19
            if count == 1 or width > 40:
                self._page.line(
                    self._data.shown(value), x + width / 2, top, 14, self._theme.ink, align="centre"
                )

    def _line(self, values: list[float], plot: Box, slot: float, number: int, colour: str) -> None:
        points = [(plot.x + (at + 0.5) * slot, self._y(value, plot)) for at, value in enumerate(values)]
        self._page.rule(points, colour, 2.5)
        for at, (x, y) in enumerate(points):
            self._page.bar(Box(x - 3.5, y - 3.5, 7, 7), colour)
            top = y + 5 if (number, at) in self._data.below() else y - 23
            self._page.line(self._data.shown(values[at]), x, top, 14, self._theme.ink, align="centre")

    def _label(self, text: str, x: float, y: float, width: float) -> None:
        size = 14.0 if len(self._data.labels) < 9 else 11.0
        for number, line in enumerate(wrap(text, width, size, Measure())[:2]):
            self._page.line(line, x, y + number * size * LINE, size, self._theme.ink, align="centre")

    def _legend(self, box: Box, y: float) -> None:
        x = box.x + 56
        for number, series in enumerate(self._data.series):
            self._page.bar(Box(x, y + 2, 11, 11), self._theme.chart_colours[number])
            name = wrap(series.name, 220, 14, Measure())[0]
            self._page.line(name, x + 17, y - 2, 14, self._theme.ink)
            x += 17 + Measure().width(name, 14) + 28


def _colour(value: str) -> Any:
    from reportlab.lib.colors import HexColor

    return HexColor(f"#{value}")
