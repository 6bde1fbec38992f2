"""The chart of a shared slide, as SVG within a page.

Its series have the classes `s0`, `s1` and `s2`, to which the page's style gives their colours.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from ephemera_services.slides.chart_data import ChartData, axis_of

_WIDTH, _HEIGHT = 640, 250  # of the plot
_SIDE, _ABOVE = 6, 26  # around it
_LETTER = 7.5  # the usual width of one


def chart_svg(data: ChartData) -> str:
    """Columns, or lines over time, with their values; below them what the colours mean."""
    low, high, step = axis_of(data)
    slot = _WIDTH / len(data.labels)

    def y(value: float) -> float:
        return _ABOVE + _HEIGHT * (high - value) / (high - low)

    lines = (y(low + at * step) for at in range(round((high - low) / step) + 1))
    grid = "".join(f'<line x1="{_SIDE}" x2="{_SIDE + _WIDTH}" y1="{at:.1f}" y2="{at:.1f}"/>' for at in lines)
    labels = (
        _text(_SIDE + (at + 0.5) * slot, _ABOVE + _HEIGHT + 20, _cut(label, slot))
        for at, label in enumerate(data.labels)
    )
    draw = _line if data.is_time else _columns
    series = (draw(data, number, slot, y) for number in range(len(data.series)))
    described = "; ".join(
        f"{label}: " + ", ".join(f"{each.name} {data.shown(each.values[at])}".strip() for each in data.series)
        for at, label in enumerate(data.labels)
    )
    view = f'viewBox="0 0 {_WIDTH + 2 * _SIDE} {_HEIGHT + 2 * _ABOVE + 4}"'
    names = "".join(
        f'<span><i class="s{at}"></i>{escape(each.name)}</span>' for at, each in enumerate(data.series)
    )
    return (
        f'<div class="wide"><svg {view} role="img" aria-label="{escape(described)}">{grid}{"".join(series)}'
        f'{"".join(labels)}</svg></div><div class="legend" aria-hidden="true">{names}</div>'
    )


def _columns(data: ChartData, number: int, slot: float, y: Callable[[float], float]) -> str:
    wide = min(slot * 0.6 / len(data.series), 60)
    drawn = []
    for at, value in enumerate(data.series[number].values):
        x = _SIDE + (at + 0.5) * slot + (number - len(data.series) / 2) * wide
        top, bottom = sorted((y(value), y(0)))
        box = f'x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{bottom - top:.1f}"'
        drawn.append(f'<rect class="s{number}" {box}/>')
        shown = data.shown(value)
        if len(shown) * _LETTER <= wide + 8:
            drawn.append(_text(x + wide / 2, top - 5, shown))
    return "".join(drawn)


def _line(data: ChartData, number: int, slot: float, y: Callable[[float], float]) -> str:
    values = data.series[number].values
    points = [(_SIDE + (at + 0.5) * slot, y(value)) for at, value in enumerate(values)]
    path = " ".join(f"{x:.1f},{top:.1f}" for x, top in points)
    marks = (f'<circle class="s{number}" cx="{x:.1f}" cy="{top:.1f}" r="4"/>' for x, top in points)
    below = data.below()
    texts = (
        _text(x, top + (19 if (number, at) in below else -9), data.shown(values[at]))
        for at, (x, top) in enumerate(points)
    )
    return f'<polyline class="s{number}" points="{path}"/>{"".join(marks)}{"".join(texts)}'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'


def _cut(label: str, width: float) -> str:
    room = max(int(width / _LETTER), 2)
    return label if len(label) <= room else f"{label[: room - 1]}…"
