"""The rows of the jobs page: delayed, unique and urgent jobs, and schedules with their next run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ephemera.console._pages._job_rows import job_row, queue_name, schedule_row, short_names
from ephemera.operations.inspect import JobCounts
from ephemera.patterns.jobs import JobRow, ScheduleRow

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
COUNTS = JobCounts(NOW, 1, {}, {}, {})
EMPTY = dict.fromkeys(JobRow.__struct_fields__)


def row(**values: Any) -> dict[str, Any]:
    """The row of a waiting job."""
    usual = {"id": "0123456789", "kind": "export", "state": "waiting", "steps": 0, "attempts": 0}
    times = {"created_at": NOW - timedelta(minutes=5), "available_at": NOW - timedelta(minutes=5)}
    return job_row("shop/jobs", JobRow(**{**EMPTY, **usual, **times, "priority": 0, **values}), COUNTS)


def test_a_delayed_job_says_when_it_is_due() -> None:
    """Only while it waits for its time."""
    later = NOW + timedelta(hours=2)
    assert (row(available_at=later)["state"], row(available_at=later)["lease"]) == ("delayed", "in 2 h")
    assert (row()["state"], row()["lease"]) == ("waiting", "")
    held = row(state="running", available_at=later, lease_until=NOW + timedelta(seconds=4))
    assert (held["state"], held["lease"]) == ("running", "4 s")
    assert row(state="running", lease_until=NOW - timedelta(seconds=4))["lease"] == "expired"
    assert row(state="cancelled", available_at=later)["state"] == "cancelled"
    assert row(state="cancelled", lease_until=NOW - timedelta(seconds=4))["lease"] == ""


def test_options_are_shown_if_they_are_not_the_usual_ones() -> None:
    """The priority and uniqueness."""
    assert row()["name"] == "export 01234567"
    assert row(priority=5, unique_key="export:7")["name"] == "export 01234567 (priority 5, unique)"


def test_a_schedule_says_when_it_runs() -> None:
    """The next run as time and distance; one that no worker dispatches is overdue."""
    schedule = ScheduleRow("nightly", "export", "0 3 * * * UTC", NOW + timedelta(hours=15), None, None)
    shown = schedule_row("shop/jobs", schedule, NOW)
    assert shown["next"] == "2026-05-02 03:00:00 UTC (in 15 h)"
    missed, before = NOW - timedelta(minutes=9), NOW - timedelta(days=1)
    late = ScheduleRow("nightly", "export", "", missed, before, "0123456789")
    shown = schedule_row("shop/jobs", late, NOW)
    assert "(overdue by 9 min)" in shown["next"]
    assert (shown["last"], shown["job"]) == ("24 h ago", "01234567")


def test_a_queue_has_the_shortest_name_that_is_clear() -> None:
    """One set of jobs needs no prefix, jobs of different services theirs, several of a service all of it."""
    assert short_names(["shop/jobs"]) == {"shop/jobs": ""}
    assert short_names(["shop/jobs", "mail/jobs"]) == {"shop/jobs": "shop", "mail/jobs": "mail"}
    both = ["shop/jobs", "shop/mails"]
    assert short_names(both) == dict(zip(both, both, strict=True))
    assert [queue_name("", "work"), queue_name("shop", "work")] == ["work", "shop/work"]
