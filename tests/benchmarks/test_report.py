from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import growth, plot, report
from benchmarks.outcome import Outcome
from benchmarks.rows import Times
from benchmarks.suite import ROWS, chosen

KEYS = ["name", "unit", "ours", "peers", "ratio_to_best_peer", "target", "met"]


def measured(ours: float) -> list[Outcome]:
    """Outcomes for the first two rows of the suite; one peer is missing."""
    outcomes = []
    for row in ROWS[:2]:
        first, *others = row.peers
        figures = {"ephemera": [ours], **{peer: [100.0] for peer in others}}
        outcomes.append(Outcome(row, figures, {first: "not installed (it)"}))
    return outcomes


def test_results_are_written_in_the_agreed_form(tmp_path: Path) -> None:
    """The file is a list of entries with the agreed keys, and a partial run updates its own alone."""
    path = tmp_path / "results.json"
    report.write(measured(5000), ROWS, path)
    report.write(measured(7000)[1:], ROWS, path)
    entries = json.loads(path.read_text())
    assert [list(entry) for entry in entries] == [KEYS, KEYS]
    assert [entry["ours"] for entry in entries] == [5000, 7000]


def test_a_raised_target_judges_what_was_measured(tmp_path: Path) -> None:
    """Figures of an earlier run are judged by the present target, and a peer that is new is missing."""
    path, row = tmp_path / "results.json", ROWS[0]
    figures = {"ephemera": [5000.0], **{peer: [100.0] for peer in row.peers}}
    report.write([Outcome(row, figures)], ROWS, path)
    kept = json.loads(path.read_text())
    raised = replace(row, targets=(Times(60),), peers={**row.peers, "a new one": row.ours})
    (entry,) = report.write([], [raised], path)
    assert (kept[0]["met"], entry["met"], entry["ours"]) == (True, False, 5000)
    assert entry["peers"] == {**kept[0]["peers"], "a new one": None}
    assert report.write([], [row], path) == kept


def test_the_published_results_are_of_this_suite() -> None:
    """The committed file names rows that exist, with the targets and peers they have now."""
    if not report.RESULTS.exists():
        pytest.skip("benchmarks/results.json is not written yet: make bench")
    rows = {row.name: row for row in (*ROWS, *growth.ROWS)}
    for entry in json.loads(report.RESULTS.read_text()):
        assert list(entry) == KEYS
        assert entry["target"] == rows[entry["name"]].target
        assert list(entry["peers"]) == list(rows[entry["name"]].peers)


def test_the_report_names_what_is_missing_and_what_was_missed() -> None:
    """A reader sees every absent peer with its reason, and every target that was not reached."""
    text = io.StringIO()
    report.show(Console(file=text, width=200), {"CPU": "abacus"}, measured(300))
    said = text.getvalue()
    assert "abacus" in said
    assert f"{ROWS[0].name}: redis-py: not installed (it)" in said
    assert "at least 5x the best peer (reached 3.00x)" in said


def test_a_row_in_a_line() -> None:
    """A log says of each row what came of it."""
    _, outcome = measured(300)
    assert report.line(outcome) == f"{ROWS[1].name}: 300 {ROWS[1].unit}, 3.00x, [bold red]missed[/]"


def test_the_plot_shows_chosen_rows(tmp_path: Path) -> None:
    """The picture is an SVG, the same for the same figures, and its rows are measured."""
    pytest.importorskip("matplotlib", reason="matplotlib comes with the bench extra")
    entries = [outcome.as_json() for outcome in measured(5000)]
    one, two, again = tmp_path / "one.svg", tmp_path / "two.svg", tmp_path / "again.svg"
    plot.draw(entries[:1], one)
    plot.draw(entries, two)
    plot.draw(entries, again)
    assert one.stat().st_size < two.stat().st_size
    assert two.read_bytes() == again.read_bytes()
    assert plot.TITLES.keys() <= {row.name for row in ROWS}


def test_rows_are_chosen_by_a_part_of_their_name() -> None:
    """Any of the given texts is enough, in either case; no text means all."""
    assert chosen([]) == list(ROWS)
    assert [row.name for row in chosen(["500 TASKS, share", "8 threads, call"])] == [
        "wire: 500 tasks, share of C",
        "sync: 8 threads, call",
    ]


def test_names_are_unique() -> None:
    """A row's name is its identity in results.json."""
    assert len({row.name for row in ROWS}) == len(ROWS)
