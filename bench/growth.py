"""How the wire grows with the number of tasks, beside redis-py: `python -m bench.growth`.

Writes docs/images/growth.svg. The figures are those of the wire's rows, with 1 to 1000 tasks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from rich.console import Console
from rich.progress import Progress

from bench import peers, wire
from bench.measure import Plan, measure
from bench.outcome import OURS
from bench.plot import COLOURS, INK
from bench.rows import Row

if TYPE_CHECKING:
    from bench.outcome import Outcome

PLOT = Path(__file__).parents[1] / "docs" / "images" / "growth.svg"
TASKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PLAN = Plan(rounds=3, seconds=0.5)


async def curve() -> dict[int, Outcome]:
    """The outcome for each number of tasks."""
    outcomes = {}
    with Progress(console=Console(stderr=True), auto_refresh=False) as progress:
        task = progress.add_task("", total=2 * PLAN.turns * len(TASKS))
        for tasks in TASKS:

            def tell(doing: str, turns_done: int, tasks: int = tasks) -> None:
                progress.update(task, advance=turns_done, description=f"{tasks} · {doing}", refresh=True)

            row = Row(str(tasks), wire.ours(tasks), {"redis-py": wire.peer(peers.redis_py_untimed, tasks)})
            outcomes[tasks] = await measure(row, PLAN, tell)
    return outcomes


def draw(outcomes: dict[int, Outcome], path: Path = PLOT) -> None:
    """Both lines, number of tasks against operations a second."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "ephemera", "text.color": INK, "axes.labelcolor": INK})
    mpl.rcParams.update({"xtick.color": INK, "ytick.color": INK, "axes.edgecolor": INK})
    figure, axes = plt.subplots(figsize=(9, 4))
    for name in (OURS, "redis-py"):
        points = [(tasks, value) for tasks, outcome in outcomes.items() if (value := outcome.value(name))]
        axes.plot(*zip(*points, strict=True), marker="o", color=COLOURS[name], label=name)
    axes.set(xscale="log", xlabel="concurrent tasks", ylabel="GET of 100 bytes, a second", ylim=0)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Measure, print and draw."""
    outcomes = uvloop.run(curve())
    for tasks, outcome in outcomes.items():
        print(f"{tasks:5} tasks: {outcome.ours or 0:9,.0f}, {outcome.ratio() or 0:5.1f}x redis-py")
    draw(outcomes)
    print(f"wrote {PLOT}")


if __name__ == "__main__":
    main()
