"""Reports outcomes: the table on the screen, missed targets, and results.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.outcome import OURS, Outcome, merged
from benchmarks.rows import Row

RESULTS = Path(__file__).with_name("results.json")
_VERDICTS = {True: "[green]met[/]", False: "[bold red]missed[/]", None: "[yellow]not judged[/]"}


def show(console: Console, facts: dict[str, str], outcomes: Sequence[Outcome]) -> None:
    """Print the table, then a line for every target missed and every contender missing."""
    for name, fact in facts.items():
        console.print(f"[dim]{name:>9}[/] {fact}", highlight=False)
    console.print(_table(outcomes))
    for outcome in outcomes:
        for name, why in outcome.missing.items():
            console.print(f"[yellow]missing[/] {outcome.row.name}: {name}: {why}", highlight=False)
    for outcome in outcomes:
        if not outcome.met:
            for line in outcome.unmet():
                console.print(f"{_VERDICTS[outcome.met]} {outcome.row.name}: {line}", highlight=False)


def _table(outcomes: Iterable[Outcome]) -> Table:
    table = Table("row", show_lines=True)
    table.add_column(OURS, justify="right")
    table.add_column("peer", no_wrap=True)
    table.add_column("theirs", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("target")
    table.add_column("")
    for outcome in outcomes:
        peers = outcome.peers
        table.add_row(
            outcome.row.name,
            f"{figure(outcome.ours)}\n[dim]{outcome.row.unit}[/]",
            "\n".join(peers),
            "\n".join(figure(value) for value in peers.values()),
            "\n".join(_times(outcome.ratio(peer)) for peer in peers),
            "\n".join(map(str, outcome.row.targets)),
            _VERDICTS[outcome.met] if outcome.row.targets else "",
        )
    return table


def line(outcome: Outcome) -> str:
    """Return a row as one line, for the log."""
    parts = [f"{outcome.row.name}: {figure(outcome.ours)} {outcome.row.unit}", _times(outcome.ratio())]
    if outcome.row.targets:
        parts.append(_VERDICTS[outcome.met])
    return ", ".join(filter(None, parts))


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def figure(value: float | None) -> str:
    """Format a figure: with thousands separators, or three digits."""
    if value is None:
        return "missing"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write(outcomes: Sequence[Outcome], rows: Sequence[Row], path: Path = RESULTS) -> list[dict[str, Any]]:
    """Update results.json and return all entries; rows no longer in the suite are dropped.

    Figures that are kept are judged by the present target of their row; a new peer is missing until then.
    """
    found = json.loads(path.read_text()) if path.exists() else []
    targets = {row.name: row for row in rows}
    old = [_judged(each, targets[each["name"]]) for each in found if each["name"] in targets]
    order = {row.name: rank for rank, row in enumerate(rows)}
    entries = merged(old, [outcome.as_json() for outcome in outcomes], order)
    path.write_text(json.dumps(entries, indent=2) + "\n")
    return entries


def _judged(entry: dict[str, Any], row: Row) -> dict[str, Any]:
    """An entry with the peers and the verdict of its row, where these were changed after it was measured."""
    if entry["target"] == row.target and [*entry["peers"]] == [*row.peers]:
        return entry
    figures = {OURS: entry["ours"], **{peer: entry["peers"].get(peer) for peer in row.peers}}
    return Outcome(row, {name: [value] for name, value in figures.items() if value is not None}).as_json()
