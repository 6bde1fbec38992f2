"""Windows: when they open, which freshness they give, when the schedule is asked, and failures."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from ephemera import embedded, keyspace
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, MissingResource
from ephemera.keyspace import Catalogue
from ephemera.patterns._server_clock import SERVER_CLOCK
from ephemera.patterns.windows import Freshness, Windows
from tests.wire.conditions import eventually

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
OUTSIDE, INSIDE = (
    Freshness(fresh=timedelta(days=7), stale=HOUR),
    Freshness(fresh=30 * SECOND, stale=5 * MINUTE),
)


class Schedule:
    """The source: matches relative to now, and how often it was asked."""

    def __init__(self, *matches: timedelta) -> None:
        now = datetime.now(UTC)
        self.matches: list[datetime] = [now + match for match in matches]
        self.asked = 0
        self.broken = False


async def matches(schedule: Schedule, since: datetime, until: datetime) -> list[datetime]:
    """The schedule."""
    schedule.asked += 1
    if schedule.broken:
        raise LookupError("no schedule today")
    return [match for match in schedule.matches if since <= match <= until]


def declare(**options: Any) -> tuple[Catalogue, Windows[Schedule]]:
    """Windows with a key of their own."""
    catalogue = Catalogue("windows")
    return catalogue, Windows(catalogue, f"windows:{uuid4().hex}", matches, **options)


@pytest.mark.parametrize(
    ("match", "is_open"),
    [
        (HOUR, False),
        (44 * MINUTE, True),
        (-HOUR, True),
        (-2 * HOUR - 29 * MINUTE, True),
        (-2 * HOUR - 31 * MINUTE, False),
    ],
)
async def test_a_window_has_lead_time_and_grace(url: str, match: timedelta, is_open: bool) -> None:
    """It opens 45 minutes before the match and closes 30 minutes after its two hours."""
    catalogue, declared = declare()
    schedule = Schedule(match)
    async with keyspace.connect(url, catalogue, resources={declared: schedule}) as store:
        windows = store[declared]
        assert (await windows.now()).is_open is is_open


async def test_the_first_millisecond_is_part_of_a_window_and_its_end_is_not(
    server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the very moment of its opening a window is open, and at that of its end it is closed."""
    catalogue, declared = declare()
    async with keyspace.connect(server.url, catalogue, resources={declared: Schedule(HOUR)}) as store:
        windows = store[declared]
        window = (await windows.now()).next
        assert window is not None
        for moment, expected in ((window.opens, window), (window.closes, None)):
            monkeypatch.setattr(store[SERVER_CLOCK], "now", lambda moment=moment: float(moment))
            assert windows.last_known()[1:3] == (expected, None)


async def test_freshness_differs_inside_and_ends_at_the_opening(server: Valkey) -> None:
    """Seven days without a match, until the opening with a match tomorrow, and seconds inside."""
    catalogue, declared = declare(cached_for=SECOND)
    schedule = Schedule()
    async with keyspace.connect(server.url, catalogue, resources={declared: schedule}) as store:
        windows = store[declared]
        assert await windows.freshness(OUTSIDE, INSIDE) == OUTSIDE
        schedule.matches = [datetime.now(UTC) + timedelta(days=1)]
        await windows.invalidate()
        cut = await windows.freshness(OUTSIDE, INSIDE)
        assert timedelta(0) <= timedelta(days=1) - 45 * MINUTE - cut.fresh < 5 * SECOND
        assert cut.stale == INSIDE.stale
        windows.time_offset = timedelta(days=1)
        assert await windows.freshness(OUTSIDE, INSIDE) == INSIDE


async def test_nothing_is_fresh_beyond_the_lookahead(server: Valkey) -> None:
    """With a freshness of seven days and a lookahead of one, values are fresh for one day."""
    catalogue, declared = declare(lookahead=timedelta(days=1))
    schedule = Schedule(timedelta(days=2))
    async with keyspace.connect(server.url, catalogue, resources={declared: schedule}) as store:
        windows = store[declared]
        assert await windows.freshness(OUTSIDE, INSIDE) == Freshness(fresh=timedelta(days=1), stale=HOUR)


async def test_a_stale_value_at_an_opening_expires_as_inside(server: Valkey) -> None:
    """With an opening in an hour, a value that is stale for a week is stale until five minutes after it."""
    catalogue, declared = declare()
    schedule = Schedule(HOUR + 45 * MINUTE)
    async with keyspace.connect(server.url, catalogue, resources={declared: schedule}) as store:
        windows = store[declared]
        life = await windows.freshness(Freshness(fresh=MINUTE, stale=timedelta(days=7)), INSIDE)
        assert life.fresh == MINUTE
        assert timedelta(0) <= HOUR + INSIDE.stale - (life.fresh + life.stale) < 5 * SECOND


async def test_a_rehearsal_leaves_other_processes_alone(server: Valkey) -> None:
    """A process that runs a month ahead sees the matches of that time; the others see theirs."""
    catalogue, declared = declare()
    month = timedelta(days=30)
    schedule = Schedule(MINUTE, month + 3 * HOUR)
    async with (
        keyspace.connect(server.url, catalogue, resources={declared: schedule}) as stage,
        keyspace.connect(server.url, catalogue, resources={declared: schedule}) as other,
    ):
        rehearsed, real = stage[declared], other[declared]
        rehearsed.time_offset = month
        ahead, now = await rehearsed.now(), await real.now()
        assert (ahead.is_open, ahead.next is not None, now.is_open) == (False, True, True)


async def test_windows_that_touch_are_merged(server: Valkey) -> None:
    """Three matches in a row make one window; a schedule may also give begin and end."""
    now = datetime.now(UTC)
    events = [now + 3 * HOUR, now + HOUR, (now + 10 * HOUR, now + 11 * HOUR), now + 2 * HOUR]

    async def schedule(given: list[Any], since: datetime, until: datetime) -> list[Any]:
        return given

    catalogue = Catalogue("windows")
    declared: Windows[list[Any]] = Windows(catalogue, f"windows:{uuid4().hex}", schedule)
    async with keyspace.connect(server.url, catalogue, resources={declared: events}) as store:
        windows = store[declared]
        first = (await windows.now()).next
        windows.time_offset = 8 * HOUR
        second = (await windows.now()).next
    assert first is not None
    assert second is not None
    lengths = [timedelta(milliseconds=window.closes - window.opens) for window in (first, second)]
    assert lengths == [4 * HOUR + 75 * MINUTE, HOUR + 75 * MINUTE]


async def test_all_processes_share_one_answer_for_thirty_seconds(server: Valkey) -> None:
    """Fifty calls on two stores ask the schedule once, and the key has a TTL."""
    catalogue, declared = declare()
    schedule = Schedule(HOUR)
    async with (
        keyspace.connect(server.url, catalogue, resources={declared: schedule}) as one,
        keyspace.connect(server.url, catalogue, resources={declared: schedule}) as other,
    ):
        await asyncio.gather(*(store[declared].now() for store in (one, other) for _ in range(25)))
        assert schedule.asked == 1
        left = await one.call("PTTL", declared.cache.keyspace.key())
        assert 30_000 < left <= 330_000  # fresh, and then stale


async def test_a_failing_schedule_leaves_the_last_known_windows(server: Valkey) -> None:
    """The last known windows remain; a process that knows none assumes an open window."""
    catalogue, declared = declare()
    schedule = Schedule(HOUR)
    async with keyspace.connect(server.url, catalogue, resources={declared: schedule}) as store:
        windows = store[declared]
        schedule.broken = True
        unknown = await windows.now()
        assert unknown.is_open
        assert not unknown.is_known
        schedule.broken = False
        await windows.invalidate()
        assert not (await windows.now()).is_open
        schedule.broken = True
        await windows.invalidate()
        still = await windows.now()
        assert still.is_known
        assert still.next is not None


async def test_windows_work_without_the_server() -> None:
    """With Redis down the schedule is asked directly, and a window opens as foreseen."""
    catalogue, declared = declare(lead_time=timedelta(0))
    with embedded.valkey() as victim:
        schedule = Schedule()
        async with keyspace.connect(victim.url, catalogue, resources={declared: schedule}) as store:
            victim.kill()
            await eventually(lambda: not store.client().up)
            schedule.matches = [datetime.now(UTC) + SECOND]
            windows = store[declared]
            assert not (await windows.now()).is_open
            await eventually(lambda: windows.last_known().is_open)
            assert schedule.asked == 1


def test_windows_that_make_no_sense_are_refused() -> None:
    """A negative grace, or a lookahead shorter than `cached_for`, is refused."""
    with pytest.raises(InvalidDeclaration, match="grace"):
        declare(grace=-SECOND)
    with pytest.raises(InvalidDeclaration, match="lookahead"):
        declare(lookahead=SECOND)
    with pytest.raises(InvalidDeclaration, match="lifetime"):
        Freshness(fresh=timedelta(0))


async def test_windows_without_a_source_say_so(server: Valkey) -> None:
    """Using windows on a store that was opened without their source says what is missing."""
    catalogue, declared = declare()
    async with keyspace.connect(server.url, catalogue) as store:
        with pytest.raises(MissingResource, match="resources="):
            await store[declared].now()


async def test_windows_can_be_configured_for_a_store(server: Valkey) -> None:
    """A process whose settings say so opens earlier, closes later and looks further; nonsense is refused."""
    catalogue, declared = declare()
    schedule = Schedule(119 * MINUTE)
    async with keyspace.connect(server.url, catalogue, resources={declared: schedule}) as store:
        windows = store[declared]
        windows.configure(lead_time=2 * HOUR, grace=HOUR, lookahead=timedelta(days=14))
        with pytest.raises(InvalidDeclaration, match="look ahead further"):
            windows.configure(lead_time=HOUR, grace=HOUR, lookahead=SECOND)
        with pytest.raises(InvalidDeclaration):
            windows.configure(lead_time=-HOUR, grace=HOUR, lookahead=timedelta(days=1))
        now = await windows.now()
    assert now.is_open
    assert now.horizon == timedelta(days=14)
    assert declared.lead_time == 45 * MINUTE
