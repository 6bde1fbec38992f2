"""Periods of usage: hours to months, time zones whose clocks change, short months, and billing days."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store, connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidValue
from ephemera.patterns.usage import Calendar
from ephemera.patterns.usage._units import Period, period_at
from tests.patterns import usage_fixtures
from tests.patterns.usage_fixtures import CATALOGUE, USAGE, bound_usage
from tests.patterns.write_behind_fixtures import NO_DELAY, prepare_database, rows

BERLIN = "Europe/Berlin"


def _at(calendar: Calendar, *moment: int, fold: int = 0) -> Period:
    local = datetime(*moment, tzinfo=ZoneInfo(calendar.zone), fold=fold)  # type: ignore[misc, arg-type]
    return period_at(local.timestamp(), calendar)


def _hours(period: Period) -> float:
    return (period.ends - period.starts) / 3_600_000


def test_periods_of_utc_are_exact_at_their_bounds() -> None:
    """The last millisecond of a year, a leap day and a week over the new year belong where they should."""
    end = datetime(2026, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC).timestamp()
    names = {
        "hour": ("2026-12-31T23Z", "2027-01-01T00Z"),
        "day": ("2026-12-31", "2027-01-01"),
        "week": ("2026-W53", "2026-W53"),
        "month": ("2026-12", "2027-01"),
    }
    for length, expected in names.items():
        calendar = Calendar(length)  # type: ignore[arg-type]
        assert tuple(period_at(end + more, calendar).name for more in (0, 0.001)) == expected
        assert period_at(end, calendar).ends >= end * 1000 + 1 > period_at(end, calendar).starts
    leap = _at(Calendar("day"), 2028, 2, 29, 12)
    assert (leap.name, _hours(leap)) == ("2028-02-29", 24)


def test_days_and_months_begin_at_the_zones_midnight() -> None:
    """On the days when clocks change, a day of Berlin has 23 or 25 hours, and its month is that much off."""
    day, month = Calendar("day", zone=BERLIN), Calendar("month", zone=BERLIN)
    spring, autumn = _at(day, 2026, 3, 29, 12), _at(day, 2026, 10, 25, 12)
    assert [(spring.name, _hours(spring)), (autumn.name, _hours(autumn))] == [
        ("2026-03-29", 23),
        ("2026-10-25", 25),
    ]
    assert _hours(_at(month, 2026, 3, 1)) == 31 * 24 - 1
    assert spring.starts == datetime(2026, 3, 28, 23, tzinfo=UTC).timestamp() * 1000
    for fold in (0, 1):  # both times that the clocks show half past two
        assert _at(day, 2026, 10, 25, 2, 30, fold=fold) == autumn


def test_the_two_hours_of_an_autumn_night_are_two_periods() -> None:
    """An hour that the clocks show twice is two periods; the one they skip is none."""
    hour = Calendar("hour", zone=BERLIN)
    first, second = (_at(hour, 2026, 10, 25, 2, 30, fold=fold) for fold in (0, 1))
    assert (first.name, second.name) == ("2026-10-25T02+0200", "2026-10-25T02+0100")
    assert first.ends == second.starts
    before, after = _at(hour, 2026, 3, 29, 1, 59), _at(hour, 2026, 3, 29, 3, 0)
    assert (before.ends, before.name, after.name) == (
        after.starts,
        "2026-03-29T01+0100",
        "2026-03-29T03+0200",
    )
    nepal = _at(Calendar("hour", zone="Asia/Kathmandu"), 2026, 1, 1, 5, 50)
    assert (nepal.name, nepal.starts % 3_600_000) == ("2026-01-01T05+0545", 15 * 60_000)


def test_a_midnight_that_clocks_skip_or_repeat() -> None:
    """Where clocks change at midnight, the day begins with its first moment, and no moment is left out."""
    for zone, date in (("America/Havana", (2026, 3, 8)), ("Africa/Cairo", (2026, 4, 24))):
        day = Calendar("day", zone=zone)
        skipped = _at(day, *date, 12)
        assert (_hours(skipped), _at(day, *date, 1).starts) == (23, skipped.starts)
        assert period_at(skipped.starts / 1000 - 0.001, day).ends == skipped.starts
    havana = Calendar("day", zone="America/Havana")
    repeated = _at(havana, 2026, 11, 1, 0, 30, fold=1)
    assert (repeated.name, _hours(repeated)) == ("2026-11-01", 25)
    assert _at(havana, 2026, 11, 1, 0, 30) == repeated


@pytest.mark.parametrize("zone", ["UTC", BERLIN, "America/Havana", "Asia/Kathmandu", "Pacific/Apia"])
@pytest.mark.parametrize("calendar", [("hour", 1), ("day", 1), ("week", 1), ("week", 4), ("month", 31)])
def test_periods_follow_each_other_without_a_gap(zone: str, calendar: tuple[Any, int]) -> None:
    """Through two years every period begins where the one before it ends, under a name of its own."""
    rule = Calendar(calendar[0], zone=zone, day=calendar[1])
    end = datetime(2026, 4, 1, tzinfo=UTC).timestamp() if rule.length == "hour" else None
    period = period_at(datetime(2026, 2, 20, tzinfo=UTC).timestamp(), rule)
    names = {period.name}
    while period.ends / 1000 < (end or datetime(2028, 3, 2, tzinfo=UTC).timestamp()):
        following = period_at(period.ends / 1000, rule)
        assert following.starts == period.ends
        assert period_at(period.ends / 1000 - 0.001, rule) == period
        assert following.name not in names
        names.add(following.name)
        period = following


def test_a_billing_day_that_a_month_does_not_have_is_its_last() -> None:
    """A month that begins on the 31st begins on the 28th of February, and on the 31st again after it."""
    billing = Calendar("month", day=31)
    moments = [(2026, 1, 31), (2026, 2, 27), (2026, 2, 28), (2026, 3, 30), (2026, 3, 31), (2026, 4, 30)]
    assert [_at(billing, *moment).name for moment in moments] == [
        "2026-01-31", "2026-01-31", "2026-02-28", "2026-02-28", "2026-03-31", "2026-04-30",
    ]  # fmt: skip
    assert _at(Calendar("month", day=17), 2026, 1, 3).name == "2025-12-17"
    assert _at(Calendar("month", day=30), 2028, 2, 29).name == "2028-02-29"
    assert _at(Calendar("week", day=7), 2026, 11, 18).name == "2026-11-15"


def test_impossible_calendars_are_refused() -> None:
    """A length, zone or day that does not exist is refused with what is expected."""
    wrong: list[dict[str, Any]] = [
        {"length": "year"},
        {"length": "month", "day": 32},
        {"length": "month", "day": 0},
        {"length": "week", "day": 8},
        {"length": "day", "day": 2},
        {"length": "month", "zone": "Mars/Olympus"},
        {"length": "month", "zone": "../etc/passwd"},
        {"length": "month", "zone": ""},
    ]
    for given in wrong:
        with pytest.raises(InvalidValue):
            Calendar(**given)


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with an empty backlog."""
    async with connect(server.url, CATALOGUE) as opened:
        counters = USAGE.counters
        for keys in counters.shards.keys(counters.pending, counters.sealed, counters.shards.state):
            for each in keys:
                await opened.client("queue").call("UNLINK", each)
        yield opened


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on a database with an empty table of usage."""
    engine = await prepare_database(postgres)
    async with engine.begin() as sql:
        await sql.run_sync(usage_fixtures.METADATA.drop_all)
        await sql.run_sync(usage_fixtures.METADATA.create_all)
    yield engine
    await engine.dispose()


async def test_an_organization_has_its_own_billing_day(store: Store, engine: AsyncEngine, key: str) -> None:
    """Usage counts for the period of the organization's calendar, including in SQL, and in no other."""
    usage = bound_usage(store, engine)
    today = datetime.now(UTC).date()
    yesterday = today - timedelta(days=1)
    anchored = Calendar("month", day=yesterday.day if yesterday.day < 29 else 28)
    await usage.record(key, tokens=5, calendar=anchored)
    async with await usage.reserve(key, tokens=9, limits={"tokens": 20}, calendar=anchored) as reservation:
        await reservation.settle(tokens=2)
    totals = await usage.totals(key, calendar=anchored)
    expected = period_at(datetime.now(UTC).timestamp(), anchored).name
    assert (totals.period, totals.used["tokens"]) == (expected, 7)
    assert (await usage.totals(key, period=expected)).used["tokens"] == 7
    if anchored.day != 1:
        assert (await usage.totals(key)).used["tokens"] == 0
    await usage.flusher(**NO_DELAY).flush()
    assert (key, expected, 0, 7, 0) in await rows(engine, usage_fixtures.RECORDS)
    with pytest.raises(InvalidValue, match="a calendar of months"):
        await usage.record(key, tokens=1, calendar=Calendar("day"))
