"""Writes docs/proof/bench.md from results.json and runs.json: `python -m benchmarks.page`.

runs.json says when and on which machine each row was last measured: a run of some rows (`--only`) leaves the
others as they were, so each has its own date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import growth
from benchmarks.outcome import Outcome
from benchmarks.report import RESULTS, figure
from benchmarks.rows import Row, Times
from benchmarks.suite import ROWS

PAGE = Path(__file__).parents[1] / "docs" / "proof" / "bench.md"
RUNS = Path(__file__).with_name("runs.json")
_VERDICTS = {True: "met", False: "**missed**", None: "not judged"}
_BETWEEN_TARGETS = re.compile(r" and (?=at (?:least|most) )")  # a peer's name may have an "and", too
_TIMES = re.compile(r"at least ([0-9.e+-]+)x (.+)")
_HEAD = """\
# Benchmarks

`make bench` measures Ephemera and its peers in one process, in interleaved rounds, and takes the median; it
writes this page, `benchmarks/results.json` and the plots. A ratio above 1 means that Ephemera is better,
whether higher or lower figures are better for a row; each target is followed by the ratio that it is
compared with. `python -m benchmarks --only TEXT` measures some rows; the others keep their figures and
dates.

![Four of the rows below: Ephemera and its peers](../images/bench.svg)
"""


def record_runs(outcomes: Iterable[Outcome], facts: dict[str, str], path: Path = RUNS) -> dict[str, Any]:
    """Record when and where these rows were measured; return the records of all current rows."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    today = datetime.now(UTC).date().isoformat()
    machine = facts["CPU"].partition(", load")[0]
    now = {outcome.row.name: {"date": today, "machine": machine} for outcome in outcomes}
    known.update(now)
    found = {row.name: known[row.name] for row in (*ROWS, *growth.ROWS) if row.name in known}
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return found


def render(entries: list[dict[str, Any]], runs: dict[str, Any]) -> str:
    """Render the page of these entries of results.json."""
    known = {entry["name"]: entry for entry in entries}
    judged = [known.get(row.name) for row in ROWS if row.targets]
    counts = {
        "met": sum(entry is not None and entry["met"] is True for entry in judged),
        "missed": sum(entry is not None and entry["met"] is False for entry in judged),
        "not judged": sum(entry is not None and entry["met"] is None for entry in judged),
        "not measured yet": sum(entry is None for entry in judged),
    }
    summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    machines = sorted({run["machine"] for run in runs.values()})
    lines = [_HEAD, f"Of {len(judged)} rows with a target: {summary}.", ""]
    if machines:
        lines += [f"Machines: {'; '.join(machines)}.", ""]
    areas: dict[str, list[Row]] = {}  # in the order in which they first appear
    for row in ROWS:
        areas.setdefault(row.name.partition(":")[0], []).append(row)
    for area, rows in areas.items():
        lines += [f"## {area}", "", *_table(rows, known, runs), ""]
    lines += ["## Growth of cost", "", "![Growth of cost](../images/growth.svg)", ""]
    lines += ["No targets: these rows show a slope.", ""]
    lines += _table(growth.ROWS, known, runs)
    return "\n".join(lines) + "\n"


def _table(rows: Iterable[Row], known: dict[str, Any], runs: dict[str, Any]) -> list[str]:
    lines = [
        "| row | ours | peers | ratio to the best | target | | measured |",
        "|---|---:|---|---:|---|---|---|",
    ]
    for row in rows:
        name = row.name
        short = name.partition(": ")[2]
        entry = known.get(name)
        if entry is None:
            lines.append(f"| {short} | | | | | not measured yet | |")
            continue
        theirs = ", ".join(f"{peer} {figure(value)}" for peer, value in entry["peers"].items())
        ratio = entry["ratio_to_best_peer"]
        verdict = _VERDICTS[entry["met"]] if entry["target"] else ""
        lines.append(
            f"| {short} | {figure(entry['ours'])} {entry['unit']} | {theirs} | "
            f"{'' if ratio is None else f'{ratio:.2f}x'} | {judged(entry, row)} | {verdict} | "
            f"{runs.get(name, {}).get('date', '')} |"
        )
    return lines


def judged(entry: dict[str, Any], row: Row) -> str:
    """Return the targets of an entry, each relative one with the measured ratio."""
    targets = _BETWEEN_TARGETS.split(entry["target"])
    return " and ".join(_with_ratio(target, entry, row) for target in targets)


def _with_ratio(target: str, entry: dict[str, Any], row: Row) -> str:
    found = _TIMES.fullmatch(target)
    if found is None:
        return target
    factor = float(found[1])
    peer: str | None = found[2]
    if peer in entry["peers"]:
        ours, theirs = entry["ours"], entry["peers"][peer]
        best_first = (ours, theirs) if row.higher_is_better else (theirs, ours)
        ratio = best_first[0] / best_first[1] if ours and theirs else None
    else:
        peer, ratio = None, entry["ratio_to_best_peer"]
    return f"{Times(factor, peer)}{'' if ratio is None else f' ({ratio:.3g}x)'}"


def write(path: Path = PAGE) -> None:
    """Write the page from the files."""
    entries = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    runs = json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(entries, runs), encoding="utf-8")


if __name__ == "__main__":
    write()
