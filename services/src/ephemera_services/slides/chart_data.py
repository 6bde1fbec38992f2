"""The numbers of a table that a chart shows better: labels in its first column, numbers in the others.

A table with a cell that is not a number, or whose decimal mark is unclear, remains a table, and so does
one whose columns cannot share an axis: with years, or with percentages beside other numbers. The page draws
the same charts as exports: it gets them ready to draw, and reads no numbers itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from math import floor, log10

import msgspec

from ephemera_services.slides.deck import SlideContent, Table
from ephemera_services.slides.table_numbers import numbers

_MAX_SERIES = 3
_MAX_POINTS = 12
_GRID = 4  # lines across a chart
_CLOSE = 0.09  # of the axis: numbers above both lines would overlap
_DATE = re.compile(r"(?:19|20)\d\d")
_YEAR = re.compile(r"(?:Q[1-4]\s*)?(?:1[89]|20)\d\d(?:[-/.]\d{1,2})?|Q[1-4]")
_WITH_COMMA = str.maketrans(",.", "\u00a0,")


class Series(msgspec.Struct, frozen=True):
    """The numbers of one column."""

    name: str
    values: list[float]


class ChartData(msgspec.Struct, frozen=True):
    """What a chart shows."""

    labels: list[str]
    series: list[Series]
    is_time: bool
    """Whether the labels are years or quarters, which a line connects."""
    unit: str
    """`%` if all numbers are percentages."""
    mark: str
    """The decimal mark of the table."""

    def shown(self, value: float, digits: int | None = None) -> str:
        """A number as the chart shows it, with the decimal mark of the table."""
        text = f"{value:,.{self.digits if digits is None else digits}f}{self.unit}"
        return text.translate(_WITH_COMMA) if self.mark == "," else text

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


class DrawnSeries(msgspec.Struct, frozen=True):
    """A series of a chart on the page."""

    name: str
    values: list[float]
    texts: list[str]
    """The values as the chart shows them."""
    below: list[bool]
    """Whether a text is below its point."""


class Chart(msgspec.Struct, frozen=True):
    """A chart as the page draws it: everything is read, rounded and written already."""

    labels: list[str]
    series: list[DrawnSeries]
    is_time: bool
    low: float
    """The lower end of the axis; below zero if a value is."""
    high: float


def chart_data(table: Table) -> ChartData | None:
    """The chart of a table; None if it is better shown as a table."""
    labels = [row[0] for row in table.rows]
    names = table.header[1:]
    if not 2 <= len(labels) <= _MAX_POINTS or len(names) > _MAX_SERIES or not all(labels):
        return None
    columns = [[row[at] for row in table.rows] for at in range(1, len(names) + 1)]
    read = numbers([cell for cells in columns for cell in cells])
    percent = {
        "%" in name or all("%" in cell for cell in cells) for name, cells in zip(names, columns, strict=True)
    }
    if read is None or len(percent) > 1:
        return None
    if any(all(_DATE.fullmatch(cell) for cell in cells) for cells in columns):
        return None
    values, mark = read
    series = [
        Series(name, values[at * len(labels) : (at + 1) * len(labels)]) for at, name in enumerate(names)
    ]
    unit = "%" if percent == {True} else ""
    return ChartData(labels, series, all(_YEAR.fullmatch(label) for label in labels), unit, mark)


def chart_of(slide: SlideContent) -> Chart | None:
    """The chart of a slide; None if it shows none."""
    data = None if slide.layout != "chart" or slide.table is None else chart_data(slide.table)
    if data is None:
        return None
    low, high, _ = axis_of(data)
    below = data.below() if data.is_time else set()
    series = [
        DrawnSeries(
            each.name,
            each.values,
            [data.shown(value) for value in each.values],
            [(number, at) in below for at in range(len(data.labels))],
        )
        for number, each in enumerate(data.series)
    ]
    return Chart(data.labels, series, data.is_time, low, high)


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
