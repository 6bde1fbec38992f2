"""The plot of growth: reads per second above, the 99th percentile below, one column per series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.growth import PEER, POINTS
from benchmarks.outcome import OURS
from benchmarks.plot import COLOURS, INK

PLOT = Path(__file__).parents[1] / "docs" / "images" / "growth.svg"
_SERIES = {"tasks": "concurrent tasks", "keys": "keys on the server, 50 tasks", "nodes": "masters, 50 tasks"}


def draw(entries: list[dict[str, Any]], path: Path = PLOT) -> None:
    """Write the plot of these entries of results.json, if there are any of growth."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    known = {entry["name"]: entry for entry in entries}
    if not any(point.name in known for point in POINTS):
        return
    mpl.rcParams.update({"svg.hashsalt": "ephemera", "text.color": INK, "axes.labelcolor": INK})
    mpl.rcParams.update({"xtick.color": INK, "ytick.color": INK, "axes.edgecolor": INK})
    figure, grid = plt.subplots(2, len(_SERIES), figsize=(11, 5), sharex="col", sharey="row")
    for column, (series, label) in enumerate(_SERIES.items()):
        for row, unit in enumerate(("GET a second", "p99 of a GET, ms")):
            axes = grid[row][column]
            for name in (OURS, PEER):
                _line(axes, known, series, row, name)
            _set(axes, series, label if row else "", unit if column == 0 else "")
    grid[0][0].legend(frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


def _line(axes: Any, known: dict[str, Any], series: str, row: int, name: str) -> None:
    found = []
    for point in POINTS:
        entry = known.get(point.rows[row].name)
        if point.series == series and entry is not None:
            value = entry["ours"] if name == OURS else entry["peers"].get(name)
            found.append((point.size, value))
    points = [each for each in found if each[1]]
    if points:
        axes.plot(*zip(*points, strict=True), marker="o", color=COLOURS[name], label=name)


def _set(axes: Any, series: str, across: str, up: str) -> None:
    axes.set(xlabel=across, ylabel=up, yscale="log")
    if series != "nodes":
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}M" if x >= 1e6 else f"{x:,g}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.2)
