"""Measures text, breaks it into lines, and finds the largest size at which it fits its box.

Widths are those of Carlito, whose licence (OFL) is beside its files in `fonts/`. It is embedded in PDFs, and
its metrics are those of Calibri, which PPTX files name: both formats break lines at the same places. Another
font of a brand kit is taken to be up to a third wider.

A word that is wider than its box is broken, and text that does not fit at the smallest size ends with an
ellipsis: nothing is ever drawn outside of its box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

LINE = 1.22
"""The height of a line, in font sizes, as Calibri has it."""
REGULAR, BOLD = "Carlito", "Carlito-Bold"
WIDE = "HeiseiKakuGo-W5"
"""For Chinese and Japanese: it is in no file, and viewers have the glyphs."""
FONTS = Path(__file__).with_name("fonts")
_SAFETY = 1.02
_UNKNOWN_FONT = 1.35  # Verdana is a third wider
_ELLIPSIS = "…"
_SUBSTITUTES = {"₽": "RUB", "₺": "TL", "\t": " ", "\u00ad": "", "\u2011": "-"}


class Fitted(NamedTuple):
    """Paragraphs at a size at which they fit."""

    size: float
    lines: list[list[str]]
    """The lines of each paragraph."""

    def paragraphs(self) -> list[str]:
        """The text of each paragraph, which may have been cut."""
        return [" ".join(lines) for lines in self.lines]


class Measure(NamedTuple):
    """How wide text is."""

    font: str = REGULAR
    stretch: float = _SAFETY

    def width(self, text: str, size: float) -> float:
        """The width of a text in points."""
        return _width_at_one_point(self.font, text) * size * self.stretch


def measure_for(family: str, *, bold: bool = False) -> Measure:
    """The measure of a font family, as a PPTX names it."""
    known = family in ("Calibri", "Carlito")
    return Measure(BOLD if bold else REGULAR, _SAFETY if known else _UNKNOWN_FONT)


def runs(text: str, font: str) -> Iterator[tuple[str, str]]:
    """A text in parts, each with the font that has its characters."""
    has = _fonts()[font].face.charToGlyph
    part, current = "", font
    for character in text:
        shown = character if ord(character) in has else _SUBSTITUTES.get(character, character)
        wanted = font if all(ord(each) in has for each in shown) else WIDE
        if wanted != current and part:
            yield current, part
            part = ""
        current, part = wanted, part + shown
    if part:
        yield current, part


def wrap(text: str, width: float, size: float, measure: Measure) -> list[str]:
    """The lines of a paragraph."""
    lines: list[str] = []
    words: list[str] = []
    space, used = measure.width(" ", size), 0.0
    for word in text.split():
        for part in _breakable(word, width, size, measure):
            wide = measure.width(part, size)
            if words and used + space + wide > width:
                lines.append(" ".join(words))
                words, used = [], 0.0
            used += wide + (space if words else 0.0)
            words.append(part)
    return [*lines, " ".join(words)] if words else lines or [""]


def fit(
    paragraphs: Sequence[str],
    box: tuple[float, float],
    sizes: tuple[float, float],
    measure: Measure,
    *,
    gap: float = 0.0,
) -> Fitted:
    """The paragraphs at the largest of `sizes` (largest, smallest) at which they fit a box.

    `gap` is the space between paragraphs, in font sizes.
    """
    width, height = box
    size, smallest = sizes
    while True:
        lines = [wrap(each, width, size, measure) for each in paragraphs]
        if text_height(lines, size, gap) <= height:
            return Fitted(size, lines)
        if size <= smallest:
            return Fitted(size, _cut(lines, height, width, size, gap, measure))
        size = max(size - 1, smallest)


def text_height(lines: Sequence[Sequence[str]], size: float, gap: float = 0.0) -> float:
    """The height of paragraphs in points."""
    return (sum(map(len, lines)) * LINE + max(len(lines) - 1, 0) * gap) * size


def _cut(
    lines: list[list[str]], height: float, width: float, size: float, gap: float, measure: Measure
) -> list[list[str]]:
    """As many lines as fit; the last one ends with an ellipsis."""
    kept: list[list[str]] = []
    for paragraph in lines:
        kept.append([])
        for line in paragraph:
            kept[-1].append(line)
            if text_height(kept, size, gap) > height:
                kept[-1].pop()
                break
        else:
            continue
        break
    kept = [paragraph for paragraph in kept if paragraph]
    if kept:
        kept[-1][-1] = _with_ellipsis(kept[-1][-1], width, size, measure)
    return kept


def _with_ellipsis(line: str, width: float, size: float, measure: Measure) -> str:
    while line and measure.width(line + _ELLIPSIS, size) > width:
        line = line[:-1].rstrip()
    return line + _ELLIPSIS


def _breakable(word: str, width: float, size: float, measure: Measure) -> Iterator[str]:
    """A word, in parts that are no wider than a line; it is measured once, however many they are."""
    if measure.width(word, size) <= width:
        yield word
        return
    start, used = 0, 0.0
    for at, character in enumerate(word):
        wide = measure.width(character, size)
        if at > start and used + wide > width:
            yield word[start:at]
            start, used = at, 0.0
        used += wide
    yield word[start:]


@lru_cache(maxsize=20_000)
def _width_at_one_point(font: str, text: str) -> float:
    from reportlab.pdfbase.pdfmetrics import stringWidth

    _fonts()
    return sum(float(stringWidth(run, name, 1)) for name, run in runs(text, font))


@cache
def _fonts() -> dict[str, Any]:
    """The fonts, registered with reportlab; it imports slowly, so only where text is drawn."""
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.pdfbase.ttfonts import TTFont

    found = {
        REGULAR: TTFont(REGULAR, str(FONTS / "Carlito-Regular.ttf")),
        BOLD: TTFont(BOLD, str(FONTS / "Carlito-Bold.ttf")),
        WIDE: UnicodeCIDFont(WIDE),
    }
    for font in found.values():
        pdfmetrics.registerFont(font)
    return found
