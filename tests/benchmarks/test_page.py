"""The page of the proof says what results.json has, row by row; how cost grows has its rows and picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import growth, growth_plot, page, report
from benchmarks.measure import Plan
from benchmarks.outcome import Outcome
from benchmarks.rows import Row
from benchmarks.suite import ROWS
from ephemera import embedded


def test_the_page_is_made_from_the_results(tmp_path: Path) -> None:
    """docs/proof/bench.md is what the files give; otherwise: python -m benchmarks.page."""
    page.write(tmp_path / "bench.md")
    assert page.PAGE.read_text(encoding="utf-8") == (tmp_path / "bench.md").read_text(encoding="utf-8")


def test_each_row_has_its_verdict_and_its_date(tmp_path: Path) -> None:
    """A row that was met, one that was missed, one whose peer is missing, and rows that were not measured."""
    met, missed, alone = ROWS[0], ROWS[1], ROWS[2]
    outcomes = [
        Outcome(met, {"ephemera": [1e9], **{peer: [1.0] for peer in met.peers}}),
        Outcome(missed, {"ephemera": [1.0], **{peer: [1e9] for peer in missed.peers}}),
        Outcome(alone, {"ephemera": [1.0]}, dict.fromkeys(alone.peers, "not installed")),
    ]
    runs = page.record_runs(outcomes, {"CPU": "abacus, 2 cores, load 1 2 3"}, tmp_path / "runs.json")
    text = page.render(report.write(outcomes, ROWS, tmp_path / "results.json"), runs)
    judged = sum(bool(row.targets) for row in ROWS)
    assert f"Of {judged} rows with a target: 1 met, 1 missed, 1 not judged, {judged - 3} not " in text
    assert "Machines: abacus, 2 cores." in text
    assert text.count(runs[met.name]["date"]) == 3
    assert text.count("not measured yet |") == len(ROWS) - 3 + len(growth.ROWS)


def test_a_row_that_is_only_shown_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row without a target has nothing to meet."""
    monkeypatch.setattr(page, "ROWS", (ROWS[0], replace(ROWS[1], targets=())))
    assert "Of 1 rows with a target: 1 not measured yet." in page.render([], {})


def test_a_second_run_keeps_what_the_first_one_noted(tmp_path: Path) -> None:
    """Rows of another run keep their date and machine; rows that are no more are forgotten."""
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({ROWS[1].name: {"date": "2020-01-01", "machine": "old"}, "gone": {}}))
    runs = page.record_runs([Outcome(ROWS[0])], {"CPU": "new, load 1"}, path)
    assert [*runs] == [ROWS[0].name, ROWS[1].name]
    assert runs[ROWS[1].name] == {"date": "2020-01-01", "machine": "old"}
    assert runs == json.loads(path.read_text())


def test_points_of_growth_are_chosen_as_rows_are() -> None:
    """A text in the name of a point or of one of its rows chooses it, and each row's name is its own."""
    assert growth.chosen([]) == list(growth.POINTS)
    assert [point.size for point in growth.chosen(["growth: audit, 10,000 keys"])] == [10_000]
    assert {point.series for point in growth.chosen(["NODES"])} == {"nodes"}
    names = [row.name for row in (*ROWS, *growth.ROWS)]
    assert len({*names}) == len(names)


async def test_growth_is_measured_and_drawn(tmp_path: Path) -> None:
    """A point of tasks, one of keys and one of nodes give figures of both clients, and a picture."""
    points = [
        growth.Point("tasks", 10),
        growth.Point("keys", 10_000),
        growth.Point("nodes", 2),
    ]
    outcomes = await growth.measure(points, Plan(rounds=1, seconds=0.02), lambda doing, done: None)
    assert [outcome.row.name for outcome in outcomes] == [row.name for each in points for row in each.rows]
    assert all(outcome.ours for outcome in outcomes), [outcome.missing for outcome in outcomes]
    growth_plot.draw([outcome.as_json() for outcome in outcomes], tmp_path / "growth.svg")
    assert (tmp_path / "growth.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")


async def test_a_point_that_fails_is_missing_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The points after it are measured all the same."""
    filled = growth._fill

    async def fill(server: embedded.Valkey, keys: int) -> None:
        if keys > 1_000:
            raise MemoryError("no room")
        await filled(server, keys)

    monkeypatch.setattr(growth, "_fill", fill)
    points = [growth.Point("keys", 10_000), growth.Point("keys", 1_000)]
    outcomes = await growth.measure(points, Plan(rounds=1, seconds=0.02), lambda doing, done: None)
    assert [outcome.missing for outcome in outcomes[:3]] == [{"ephemera": "MemoryError: no room"}] * 3
    assert all(outcome.ours for outcome in outcomes[3:]), [outcome.missing for outcome in outcomes]


def test_each_area_has_one_section_and_each_target_its_ratio(tmp_path: Path) -> None:
    """Rows of an area stand together wherever the suite has them; a target has the ratio that it judges."""
    page.write(tmp_path / "bench.md")
    text = (tmp_path / "bench.md").read_text(encoding="utf-8")
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert len(titles) == len({*titles})
    row = Row("x: y", ROWS[0].ours, unit="ms", higher_is_better=False)
    entry = {"ours": 2.0, "peers": {"a and b": 10.0, "c": 5.0}, "ratio_to_best_peer": 2.5}
    entry["target"] = "at least 0.333333x a and b and at least 2x the best peer and at most 3 ms"
    text = "at least 0.33x a and b (5x) and at least 2x the best peer (2.5x) and at most 3 ms"
    assert page.judged(entry, row) == text
