"""Plots of a fixed height, so that updates move nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

_COLOURS = ("#4c8dff", "#e0812c", "#2ea86b", "#c74fb0", "#8a7bff", "#d1495b")
_GREY = "#8a94a6"  # readable on light and on dark
_GRID = "rgba(138, 148, 166, 0.22)"
# As in console.css. `inherit` is part of no valid font, so text would be measured and drawn as another one.
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', sans-serif"
_SHORT_NAME = "name => name.length > 32 ? name.slice(0, 12) + '…' + name.slice(-19) : name"
_CLOCK = "at => new Date(at).toTimeString().slice(0, 5)"
_UNITS: dict[str, str] = {
    "bytes": "v => v < 1024 ? v.toFixed(0) + ' B' : v < 1048576 ? (v / 1024).toFixed(0) + ' KiB' : "
    "v < 1073741824 ? (v / 1048576).toFixed(v < 10485760 ? 1 : 0) + ' MiB' : "
    "(v / 1073741824).toFixed(1) + ' GiB'",
    "seconds": "v => v < 0.001 ? (v * 1e6).toFixed(0) + ' µs' : v < 1 ? (v * 1000).toFixed(0) + ' ms' : "
    "v < 120 ? v.toFixed(v < 10 ? 1 : 0) + ' s' : (v / 60).toFixed(0) + ' min'",
    "percent": "v => v.toFixed(0) + ' %'",
    "number": "v => v < 10 && v % 1 ? v.toFixed(1) : v < 10000 ? v.toFixed(0) : (v / 1000).toFixed(0) + 'k'",
}


class Plot:
    """Lines over time."""

    def __init__(self, title: str, unit: str, series: Sequence[str]) -> None:
        shown = _UNITS.get(unit, _UNITS["number"])
        with ui.element("figure").classes("e-plot"):
            if title:
                with ui.element("figcaption"):
                    ui.label(title)
            self._chart = ui.echart(_options(shown, unit, series), renderer="svg").classes("e-chart")
            self._chart.props('role="img"')

    def show(self, times: Sequence[float], *values: Sequence[float | None]) -> None:
        """Set the points of each line, with common times in seconds since the epoch."""
        self.show_lines([list(zip(times, line, strict=True)) for line in values])

    def show_lines(self, lines: Sequence[Sequence[tuple[float, float | None]]]) -> None:
        """Set the points of each line, each with its own times."""
        for index, line in enumerate(lines):
            self._chart.options["series"][index]["data"] = [_point(line, n) for n in range(len(line))]
        self._chart.update()


def plot(title: str, unit: str, *series: str) -> Plot:
    """A live plot; units are `bytes`, `percent`, `seconds` or `number`."""
    return Plot(title, unit, series or (title,))


class Bars:
    """A bar chart."""

    def __init__(self, title: str) -> None:
        with ui.element("figure").classes("e-plot"):
            if title:
                with ui.element("figcaption"):
                    ui.label(title)
            self._chart = ui.echart(_bar_options(), renderer="svg").classes("e-chart").props('role="img"')

    def show(self, labels: Sequence[str], values: Sequence[float]) -> None:
        """Set the bars."""
        self._chart.options["xAxis"]["data"] = list(labels)
        self._chart.options["series"][0]["data"] = list(values)
        self._chart.update()


def bars(title: str = "") -> Bars:
    """A bar chart."""
    return Bars(title)


def _point(line: Sequence[tuple[float, float | None]], n: int) -> Any:
    """A point, drawn as a dot if it has no neighbours: no line leads to it."""
    at, value = line[n]
    point = [int(at * 1000), value]
    around = [line[each][1] for each in (n - 1, n + 1) if 0 <= each < len(line)]
    if value is None or any(each is not None for each in around):
        return point
    return {"value": point, "symbol": "circle", "symbolSize": 6}


def _options(shown: str, unit: str, series: Sequence[str]) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "type": "value",
        "min": 0,
        "splitNumber": 3,
        "axisLabel": {"color": _GREY, "fontSize": 11, ":formatter": shown},
        "splitLine": {"lineStyle": {"color": _GRID}},
    }
    if unit == "percent":
        axis |= {"max": 100, "interval": 25}
    if unit == "number":
        axis["minInterval"] = 1
    return {
        **_common(top=26 if len(series) > 1 else 12),
        "tooltip": {
            "trigger": "axis", "renderMode": "richText", "confine": True, ":valueFormatter": shown,
        },
        "legend": {
            "show": len(series) > 1, "type": "scroll", "top": 0, "left": 0, "right": 0,
            "itemWidth": 14, "itemHeight": 8, ":formatter": _SHORT_NAME,
            "textStyle": {"color": _GREY, "fontSize": 11},
            "pageIconColor": _GREY, "pageIconSize": 10, "pageTextStyle": {"color": _GREY, "fontSize": 11},
        },
        "xAxis": {
            "type": "time",
            "axisLabel": {"color": _GREY, "fontSize": 11, "hideOverlap": True, ":formatter": _CLOCK},
            "axisLine": {"lineStyle": {"color": _GRID}},
            "minInterval": 60_000,  # milliseconds
        },
        "yAxis": axis,
        "series": [
            {
                "type": "line", "name": name, "data": [], "symbol": "none", "connectNulls": False,
                "lineStyle": {"width": 2}, "areaStyle": {"opacity": 0.10 if len(series) == 1 else 0},
            }
            for name in series
        ],
    }  # fmt: skip


def _bar_options() -> dict[str, Any]:
    return {
        **_common(),
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "xAxis": {
            "type": "category", "data": [], "axisTick": {"show": False},
            "axisLabel": {"color": _GREY, "fontSize": 11, "interval": 0, "hideOverlap": True},
            "axisLine": {"lineStyle": {"color": _GRID}},
        },
        "yAxis": {
            "type": "value", "minInterval": 1, "splitNumber": 3,
            "axisLabel": {"color": _GREY, "fontSize": 11},
            "splitLine": {"lineStyle": {"color": _GRID}},
        },
        "series": [
            {"type": "bar", "data": [], "barMaxWidth": 44, "itemStyle": {"borderRadius": [3, 3, 0, 0]}}
        ],
    }  # fmt: skip


def _common(top: int = 12) -> dict[str, Any]:
    return {
        "animation": False,
        "color": list(_COLOURS),
        "grid": {"left": 8, "right": 18, "top": top, "bottom": 4, "containLabel": True},
        "textStyle": {"fontFamily": _FONT},
    }
