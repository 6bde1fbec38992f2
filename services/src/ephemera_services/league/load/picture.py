"""A chart of two runs: p95 as users saw it, over time, with and without prewarming."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ephemera_services.league.load.runner import LoadOutcome

_INK = "#757d87"
"""A grey that is readable on white and black; the background is transparent."""
_COLOURS = {True: "#e8590c", False: "#4c8bf5"}


def draw(outcomes: Sequence[LoadOutcome], path: Path) -> None:
    """Write the chart as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    inks = {f"{part}.color": _INK for part in ("text", "xtick", "ytick")}
    mpl.rcParams.update({"svg.hashsalt": "ephemera", "axes.labelcolor": _INK, "axes.edgecolor": _INK, **inks})
    figure, axes = plt.subplots(figsize=(8, 3.2))
    for outcome in outcomes:
        seconds = outcome.figures["seconds"]
        label = (
            f"prewarm {'on' if outcome.prewarmed else 'off'}: {outcome.service['pages']['misses']:,} loads"
        )
        axes.plot([each["p95"] for each in seconds], label=label, color=_COLOURS[outcome.prewarmed])
    users = max(outcome.users for outcome in outcomes)
    axes.set_xlabel(f"samples since the first of {users:,} users arrived (about one per second)")
    axes.set_ylabel("p95, ms")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)
