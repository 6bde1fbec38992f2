"""The history of hit ratios and latencies: bounded, kept over a restart, and never in the way."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from ephemera.console._history import MAX_POINTS, Counted, History, HistoryPoint, duration_at
from ephemera.console._hit_ratios import HitRatios
from ephemera.wire import LATENCY_BOUNDS

NOTE = "note:{note_id}"


def scraped(
    ratios: HitRatios,
    url: str,
    hits: int,
    misses: int,
    fast: int = 0,
    slow: int = 0,
    started: float | None = None,
) -> None:
    """One response of a process; fast calls are in the first bucket, slow ones, of notes, in the last."""
    lines = [
        f'ephemera_keyspace_hits_total{{keyspace="{NOTE}"}} {hits}',
        f'ephemera_keyspace_misses_total{{keyspace="{NOTE}"}} {misses}',
        *(
            f'ephemera_call_duration_seconds_bucket{{server="cache:6379",le="{bound}"}} {fast}.0'
            for bound in LATENCY_BOUNDS
        ),
        f'ephemera_call_duration_seconds_bucket{{server="cache:6379",le="+Inf"}} {fast + slow}.0',
        *(
            f'ephemera_keyspace_duration_seconds_bucket{{keyspace="{NOTE}",le="{bound}"}} 0.0'
            for bound in LATENCY_BOUNDS
        ),
        f'ephemera_keyspace_duration_seconds_bucket{{keyspace="{NOTE}",le="+Inf"}} {slow}.0',
        'ephemera_keyspace_duration_seconds_bucket{keyspace="unused",le="+Inf"} 0.0',
    ]
    if started is not None:
        lines.append(f"process_start_time_seconds {started}")
    ratios.count(url, "\n".join(lines))


def test_a_point_has_what_was_counted_since_the_last() -> None:
    """The first scrape of a process is where it starts, and a restart counts from 0; processes are added."""
    ratios = HitRatios(("a", "b"))
    scraped(ratios, "a", 1000, 1000)
    scraped(ratios, "b", 50, 0)
    assert ratios.take_counted().lookups == {}
    scraped(ratios, "a", 1030, 1010, fast=3)
    scraped(ratios, "b", 60, 0)
    assert ratios.take_counted().lookups == {NOTE: (40, 10)}
    scraped(ratios, "a", 5, 0, fast=1)
    assert ratios.take_counted().lookups == {NOTE: (5, 0)}


def test_processes_behind_one_url_are_distinguished() -> None:
    """A service that answers from another pod each time has not restarted; a pod started later has."""
    ratios = HitRatios(("a",))
    first, second = 1.7e9 + 0.25, 1.7e9 + 0.5
    for hits in (1000, 1010, 1020):
        scraped(ratios, "a", hits, 0, started=first)
        scraped(ratios, "a", 50 + hits // 10, 0, started=second)
    assert ratios.take_counted().lookups == {NOTE: (22, 0)}
    scraped(ratios, "a", 7, 0, started=time.time() + 60)
    scraped(ratios, "a", 1021, 0, started=first)
    assert ratios.take_counted().lookups == {NOTE: (8, 0)}


def test_processes_that_are_gone_are_forgotten() -> None:
    """However many processes come and go behind a URL, the counters of few are kept."""
    ratios = HitRatios(("a",))
    for number in range(500):
        scraped(ratios, "a", 1, 0, started=1.7e9 + number)
    assert len(ratios._before) < 100


def test_what_is_no_count_is_ignored() -> None:
    """Whatever a process responds, the scrape goes on, and the history can be saved."""
    ratios = HitRatios(("a",))
    line = f'ephemera_keyspace_hits_total{{keyspace="{NOTE}"}}'
    for value in ("0", "+Inf", "NaN", "e", "+", "-7", "1.5.2", "2e1", "9e999"):
        ratios.count("a", f"{line} {value}\n")
    counted = ratios.take_counted()
    assert counted.lookups[NOTE][0] >= 20
    msgspec.msgpack.encode(counted)


def test_latencies_are_read_from_the_buckets() -> None:
    """A quantile is the bound of the bucket in which it is; beyond the last bound it is that one."""
    ratios = HitRatios(("a",))
    scraped(ratios, "a", 0, 0)
    scraped(ratios, "a", 0, 0, fast=90, slow=10)
    counted = ratios.take_counted()
    assert counted.durations[0] == 90
    assert duration_at(counted.durations, 0.5) == 0.0001
    assert duration_at(counted.durations, 0.99) == 1.0
    assert counted.by_keyspace == {NOTE: [0] * 12 + [10]}
    assert duration_at([], 0.5) is None
    assert duration_at([0] * 13, 0.5) is None


def point(hits: int, misses: int, ago: float = 0.0) -> HistoryPoint:
    """A point of the shop."""
    first, second = [hits, *[0] * 12], [0, hits, *[0] * 11]
    return HistoryPoint(time.time() - ago, {"shop": Counted({NOTE: (hits, misses)}, first, {NOTE: second})})


def test_the_history_survives_a_restart(tmp_path: Path) -> None:
    """Its file is readable by its owner only, and points older than the ring are left out."""
    path = tmp_path / "history"
    before = History(path)
    for each in (point(1, 1, ago=10**6), point(1, 3), point(3, 1)):
        before.add(each)
    before.save()
    assert path.stat().st_mode & 0o777 == 0o600
    after = History(path)
    assert [value for _, value in after.hit_ratio("shop", NOTE)] == [25.0, 75.0]
    assert [value for _, value in after.latency("shop", 0.95)] == [0.0001, 0.0001]
    assert [value for _, value in after.latency("shop", 0.95, NOTE)] == [0.00025, 0.00025]
    assert [value for _, value in after.latency("shop", 0.95, "other")] == [None, None]
    assert after.hit_ratio("other", NOTE) == []
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content", [b"", b"damaged", msgspec.msgpack.encode([2, []]), msgspec.msgpack.encode([1, [[1, 2]]])]
)
def test_a_damaged_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    """The history starts again, and replaces the file at its next point."""
    path = tmp_path / "history"
    path.write_bytes(content)
    history = History(path)
    assert not history.points
    history.add(point(1, 1))
    history.save()
    assert len(History(path).points) == 1


def test_the_history_is_bounded(tmp_path: Path) -> None:
    """Whatever is counted for however long, the ring and its file have a largest size."""
    path = tmp_path / "history"
    history = History(path)
    for _ in range(2 * MAX_POINTS):
        many = {f"space:{number}": (number, 1) for number in range(400)}
        durations = {name: [hits] * 13 for name, (hits, _) in many.items()}
        history.add(HistoryPoint(time.time(), {"shop": Counted(many, [1] * 13, durations)}))
    assert len(history.points) == MAX_POINTS
    for kept in (
        history.points[-1].services["shop"].lookups,
        history.points[-1].services["shop"].by_keyspace,
    ):
        assert len(kept) == 300
        assert "space:399" in kept  # the busiest ones are kept
    history.save()
    assert path.stat().st_size < 8 * 1024 * 1024


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    """A missing folder is reported in the log, and the history goes on in memory."""
    history = History(tmp_path / "missing" / "history")
    history.add(point(1, 1))
    history.save()
    assert len(history.points) == 1
