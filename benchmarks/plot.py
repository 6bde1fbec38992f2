"""The README's plot: a group of bars for each of a few rows, Ephemera and its peers, each on its own scale.

The other rows are in the tables of `docs/proof/bench.md`: a picture of all of them is ten screens long.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PLOT = Path(__file__).parents[1] / "docs" / "images" / "bench.svg"

TITLES = {
    "wire: 50 tasks": "Commands, from 50 concurrent tasks",
    "wire: 500 tasks": "Commands, from 500 concurrent tasks",
    "rate limits: fixed window": "Checks of a rate limit",
    "web: sessions and limits on a hello": "Requests that read a session and check a rate limit",
}
"""The rows that are shown, with what they measure."""
INK = "#757d87"
"""Grey that is read on white and on black; the background is transparent."""
COLOURS = {
    "ephemera": "#e8590c",
    "redis-py": "#4c8bf5",
    "coredis": "#8a6fd1",
    "valkey-glide": "#2f9e78",
    "redis-om": "#c2478d",
}
_OTHER = "#8b949e"
_BAR, _GAP = 1.0, 1.5
"""Height of a bar, and of the room above each group where its name is."""


def draw(entries: list[dict[str, Any]], path: Path = PLOT) -> None:
    """Write the plot of those of these entries of results.json that have a title."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "ephemera", "font.family": "DejaVu Sans", "text.color": INK})
    shown = [entry for entry in entries if entry["name"] in TITLES and entry["ours"] is not None]
    height = sum(_GAP + _BAR * len(_bars(entry)) for entry in shown)
    figure, axes = plt.subplots(figsize=(6.5, 0.27 * height + 0.2))
    top = 0.0
    for entry in shown:
        top = _group(axes, entry, top)
    axes.set_ylim(top + 0.3, 0)
    axes.set_xlim(0, 1.62)
    axes.axis("off")
    figure.subplots_adjust(left=0.27, right=0.99, top=1, bottom=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


def _group(axes: Any, entry: dict[str, Any], top: float) -> float:
    bars = _bars(entry)
    longest = max(bars.values())
    axes.text(0, top + _GAP * 0.65, TITLES[entry["name"]], weight="bold", size=10, va="center")
    top += _GAP
    for name, value in bars.items():
        ours = name == "ephemera"
        middle = top + _BAR / 2
        axes.barh(middle, value / longest, height=_BAR * 0.78, color=COLOURS.get(name, _OTHER))
        weight = "bold" if ours else "normal"
        axes.text(-0.02, middle, name, ha="right", va="center", size=9, weight=weight)
        label = f"{_short(value)} {entry['unit']}{'' if ours else _factor(entry['ours'] / value)}"
        axes.text(value / longest + 0.02, middle, label, va="center", size=9, weight=weight)
        top += _BAR
    return top


def _bars(entry: dict[str, Any]) -> dict[str, float]:
    peers = {name: value for name, value in entry["peers"].items() if value is not None}
    return {"ephemera": entry["ours"], **peers}


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:.2f}M"
    if value >= 1_000:
        return f"{value / 1_000:.0f}k" if value >= 10_000 else f"{value / 1_000:.1f}k"
    return f"{value:.3g}"


def _factor(ratio: float) -> str:
    return f"   (ours {ratio:.1f}x)" if ratio >= 1 else f"   (ours {ratio:.0%})"
