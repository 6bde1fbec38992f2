"""The numbers of a table that a chart shows better: labels in its first column, numbers in the others.

Numbers are read as people write them: with currency signs, percent signs, spaces or commas between thousands,
and a decimal point or comma. A table with a cell that is not a number remains a table, and so does one whose
columns cannot share an axis: with years, or with percentages beside other numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from math import floor, log10
from typing import NamedTuple

from ephemera_services.slides.deck import Table

_MAX_SERIES = 3
_MAX_POINTS = 12
_MAX_NUMBER, _MIN_NUMBER = 1e15, 1e-9
"""Of numbers other than zero, without their signs; an axis of others has no steps."""
_GRID = 4  # lines across a chart
_CLOSE = 0.09  # of the axis: numbers above both lines would overlap
_NUMBER = re.compile(r"[-−+]?\d+(?:[.,]\d+)*")
_AFFIX = re.compile(r"[\s\u00a0\u202f%€$£¥₽₺]|EUR|USD|GBP|RUB|CHF|PLN|CZK|TRY", re.IGNORECASE)
_SPACES = re.compile(r"(?<=\d)[ \u00a0\u202f'](?=\d{3}\b)")
_DATE = re.compile(r"(?:19|20)\d\d")
_YEAR = re.compile(r"(?:Q[1-4]\s*)?(?:1[89]|20)\d\d(?:[-/.]\d{1,2})?|Q[1-4]")


class Series(NamedTuple):
    """The numbers of one column."""

    name: str
    values: list[float]


class ChartData(NamedTuple):
    """What a chart shows."""

    labels: list[str]
    series: list[Series]
    is_time: bool
    """Whether the labels are years or quarters, which a line connects."""
    unit: str
    """`%` if all numbers are percentages."""

    def shown(self, value: float) -> str:
        """A number as the chart shows it."""
        return f"{value:,.{self.digits}f}{self.unit}"

    @property
    def digits(self) -> int:
        """How many digits are shown behind the decimal point."""
        values = [value for series in self.series for value in series.values]
        return decimals(values, 2 if max(map(abs, values)) >= 1 else 4)

    def below(self) -> set[tuple[int, int]]:
        """The points, by series and label, whose numbers are below their line: another is close above."""
        low, high, _ = axis_of(self)
        found = set()
        for at in range(len(self.labels)):
            order = sorted(range(len(self.series)), key=lambda number: self.series[number].values[at])
            for number, above in pairwise(order):
                space = self.series[above].values[at] - self.series[number].values[at]
                if space < _CLOSE * (high - low):
                    found.add((number, at))
        return found


def chart_data(table: Table) -> ChartData | None:
    """The chart of a table; None if it is better shown as a table."""
    labels = [row[0] for row in table.rows]
    names = table.header[1:]
    if not 2 <= len(labels) <= _MAX_POINTS or len(names) > _MAX_SERIES or not all(labels):
        return None
    series = []
    for at, name in enumerate(names, 1):
        values = [number(row[at]) for row in table.rows]
        if any(value is None for value in values):
            return None
        series.append(Series(name, [value for value in values if value is not None]))
    columns = [[row[at] for row in table.rows] for at in range(1, len(names) + 1)]
    percent = {
        "%" in name or all("%" in cell for cell in cells) for name, cells in zip(names, columns, strict=True)
    }
    if len(percent) > 1 or any(all(_DATE.fullmatch(cell) for cell in cells) for cells in columns):
        return None
    unit = "%" if percent == {True} else ""
    return ChartData(labels, series, all(_YEAR.fullmatch(label) for label in labels), unit)


def number(cell: str) -> float | None:
    """The number that a cell is; None if it is anything else."""
    bare = _AFFIX.sub("", _SPACES.sub("", cell))
    if not _NUMBER.fullmatch(bare):
        return None
    value = float(_with_decimal_point(bare.replace("−", "-")))
    return value if value == 0 or _MIN_NUMBER <= abs(value) < _MAX_NUMBER else None


def _with_decimal_point(text: str) -> str:
    """The last separator is the decimal one, unless it is repeated, or groups three digits by commas."""
    last = max(text.rfind("."), text.rfind(","))
    if last < 0:
        return text
    mark, digits = text[last], len(text) - last - 1
    whole = text[:last].replace(",", "").replace(".", "")
    grouped = text.count(mark) > 1 or (mark == "," and digits == 3 and "." not in text)
    return whole + text[last + 1 :] if grouped else f"{whole}.{text[last + 1 :]}"


def decimals(values: Iterable[float], most: int) -> int:
    """How many digits behind the decimal point the numbers have, at most."""
    return max(len(f"{value:.{most}f}".rstrip("0").partition(".")[2]) for value in values)


def axis_of(data: ChartData) -> tuple[float, float, float]:
    """The ends of the value axis and its step: round numbers, with zero on it."""
    values = [0.0, *(value for series in data.series for value in series.values)]
    low, high = min(values), max(values)
    if low == high:
        return 0.0, 1.0, 1.0
    rough = (high - low) / _GRID
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return step * floor(low / step), step * -floor(-high / step), step
