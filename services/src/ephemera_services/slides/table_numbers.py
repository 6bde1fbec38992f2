"""Reads the numbers of a table as people write them, and never guesses a decimal mark.

Cells may have a sign, currencies, a percent sign, and spaces or commas between thousands. Whether a point or
a comma is the decimal mark is decided for the whole table, by the cells that leave no choice: `8,5`, `0.125`,
`1.234,5` or `1,234,567`. `1.500` may be one and a half or fifteen hundred; where no other cell decides, the
table has no numbers. `1,500` alone is read as fifteen hundred.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAX_NUMBER, _MIN_NUMBER = 1e15, 1e-9
"""Of numbers other than zero, without their signs; an axis of others has no steps."""
_AFFIX = r"(?:[\s\u00a0\u202f%€$£¥₽₺]|EUR|USD|GBP|RUB|CHF|PLN|CZK|TRY)*"
_SPACES = re.compile(r"(?<=\d)[ \u00a0\u202f'](?=\d{3}\b)")
_MINUS = ("-", "\u2212")
_CELL = re.compile(rf"{_AFFIX}([-\u2212+]?){_AFFIX}(\d[\d.,]*){_AFFIX}", re.IGNORECASE)
_GROUPED = {
    ",": re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?"),
    ".": re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?"),
}
_PLAIN = {mark: re.compile(rf"\d+(?:{re.escape(mark)}\d+)?") for mark in ".,"}
_OTHER = {".": ",", ",": "."}
_DIGIT, _LETTER = re.compile(r"\d"), re.compile(r"[^\W\d_]")


def are_figures(rows: Sequence[Sequence[str]], column: int) -> bool:
    """Whether a column is aligned on the right: it has digits, and no letter."""
    cells = [row[column] for row in rows]
    return any(map(_DIGIT.search, cells)) and not any(map(_LETTER.search, cells))


def numbers(cells: Sequence[str]) -> tuple[list[float], str] | None:
    """The numbers that cells are, and their decimal mark; None if a cell is anything else, or ambiguous."""
    read = [_CELL.fullmatch(_SPACES.sub("", cell)) for cell in cells]
    texts = [(found[1], found[2]) for found in read if found is not None]
    mark = _decimal_mark([digits for _, digits in texts])
    if len(texts) < len(cells) or mark is None:
        return None
    values = [_value(digits, mark) for _, digits in texts]
    if any(value is None for value in values):
        return None
    return [
        -value if sign in _MINUS else value
        for value, (sign, _) in zip(values, texts, strict=True)
        if value is not None
    ], mark


def _decimal_mark(texts: Sequence[str]) -> str | None:
    """The decimal mark of numbers; None if they have different ones, or it is unclear."""
    possible = [{mark for mark in ".," if _is_number(text, mark)} for text in texts]
    common = set.intersection({".", ","}, *possible)
    if common == {".", ","} and any("." in text for text in texts):
        return None
    return min(common, key=".,".index, default=None)


def _is_number(text: str, mark: str) -> bool:
    grouped = _GROUPED[_OTHER[mark]].fullmatch(text) and not text.startswith("0")
    return bool(grouped or _PLAIN[mark].fullmatch(text))


def _value(text: str, mark: str) -> float | None:
    value = float(text.replace(_OTHER[mark], "").replace(mark, "."))
    return value if value == 0 or _MIN_NUMBER <= value < _MAX_NUMBER else None
