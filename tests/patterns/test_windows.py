"""Windows: when they open, what lives how long, who asks the provider, and what happens without it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from ephemera import embedded, keyspace
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue
from ephemera.patterns.windows import Life, Windows
from tests.wire.waiting import eventually

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
OUTSIDE, INSIDE = Life(fresh=timedelta(days=7), stale=HOUR), Life(fresh=30 * SECOND, stale=5 * MINUTE)


class Schedule:
    """The source: matches relative to now, and how often it was asked."""

    def __init__(self, *matches: timedelta) -> None:
        now = datetime.now(UTC)
        self.matches: list[datetime] = [now + match for match in matches]
        self.asked = 0
        self.broken = False


async def matches(schedule: Schedule, since: datetime, until: datetime) -> list[datetime]:
    """The provider."""
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
async def test_a_window_has_prewarm_and_grace(url: str, match: timedelta, is_open: bool) -> None:
    """It opens 45 minutes before the match and closes 30 minutes after its two hours."""
    catalogue, declared = declare()
    async with keyspace.connect(url, catalogue) as store:
        windows = store[declared].using(Schedule(match))
        assert (await windows.now()).is_open is is_open


async def test_lifetimes_differ_inside_and_outside_and_end_at_the_opening(server: Valkey) -> None:
    """Seven days with nothing in sight, until the opening with a match tomorrow, seconds inside."""
    catalogue, declared = declare(kept=SECOND)
    async with keyspace.connect(server.url, catalogue) as store:
        schedule = Schedule()
        windows = store[declared].using(schedule)
        assert await windows.life(OUTSIDE, INSIDE) == OUTSIDE
        schedule.matches = [datetime.now(UTC) + timedelta(days=1)]
        await windows.forget()
        cut = await windows.life(OUTSIDE, INSIDE)
        assert timedelta(0) <= timedelta(days=1) - 45 * MINUTE - cut.fresh < 5 * SECOND
        assert cut.stale == INSIDE.stale
        windows.ahead = timedelta(days=1)
        assert await windows.life(OUTSIDE, INSIDE) == INSIDE


async def test_nothing_lives_further_than_the_provider_was_asked(server: Valkey) -> None:
    """A life of seven days and a look ahead of one: what nobody has looked at may hold an opening."""
    catalogue, declared = declare(lookahead=timedelta(days=1))
    async with keyspace.connect(server.url, catalogue) as store:
        windows = store[declared].using(Schedule(timedelta(days=2)))
        assert await windows.life(OUTSIDE, INSIDE) == Life(fresh=timedelta(days=1), stale=HOUR)


async def test_what_is_stale_at_an_opening_ends_as_things_inside_do(server: Valkey) -> None:
    """Fresh for a minute and stale for a week, with an opening in an hour: stale until five minutes after."""
    catalogue, declared = declare()
    async with keyspace.connect(server.url, catalogue) as store:
        windows = store[declared].using(Schedule(HOUR + 45 * MINUTE))
        life = await windows.life(Life(fresh=MINUTE, stale=timedelta(days=7)), INSIDE)
        assert life.fresh == MINUTE
        assert timedelta(0) <= HOUR + INSIDE.stale - (life.fresh + life.stale) < 5 * SECOND


async def test_a_rehearsal_leaves_other_processes_alone(server: Valkey) -> None:
    """Who is a month ahead sees the matches of that time; the others see theirs."""
    catalogue, declared = declare()
    month = timedelta(days=30)
    schedule = Schedule(MINUTE, month + 3 * HOUR)
    async with (
        keyspace.connect(server.url, catalogue) as stage,
        keyspace.connect(server.url, catalogue) as other,
    ):
        rehearsed, real = stage[declared].using(schedule), other[declared].using(schedule)
        rehearsed.ahead = month
        ahead, now = await rehearsed.now(), await real.now()
        assert (ahead.is_open, ahead.next is not None, now.is_open) == (False, True, True)


def test_windows_that_touch_are_one() -> None:
    """Three matches in a row make one window; a provider may also name begin and end."""
    _, declared = declare()
    now = datetime.now(UTC)
    spans = declared.spans([now + 2 * HOUR, now, (now + 9 * HOUR, now + 10 * HOUR), now + HOUR])
    lengths = [timedelta(milliseconds=span.closes - span.opens) for span in spans]
    assert lengths == [4 * HOUR + 75 * MINUTE, HOUR + 75 * MINUTE]


async def test_all_processes_share_one_answer_for_thirty_seconds(server: Valkey) -> None:
    """Fifty questions in two stores ask the provider once; the key is declared and ends by itself."""
    catalogue, declared = declare()
    schedule = Schedule(HOUR)
    async with (
        keyspace.connect(server.url, catalogue) as one,
        keyspace.connect(server.url, catalogue) as other,
    ):
        for store in (one, other):
            store[declared].using(schedule)
        await asyncio.gather(*(store[declared].now() for store in (one, other) for _ in range(25)))
        assert schedule.asked == 1
        left = await one.call("PTTL", declared.cache.space.key())
        assert 30_000 < left <= 330_000  # fresh, and then stale


async def test_a_failing_provider_leaves_what_was_seen(server: Valkey) -> None:
    """The windows last seen go on; a process that has seen none is inside, where lifetimes are short."""
    catalogue, declared = declare()
    schedule = Schedule(HOUR)
    async with keyspace.connect(server.url, catalogue) as store:
        windows = store[declared].using(schedule)
        schedule.broken = True
        unknown = await windows.now()
        assert unknown.is_open
        assert not unknown.known
        schedule.broken = False
        await windows.forget()
        assert not (await windows.now()).is_open
        schedule.broken = True
        await windows.forget()
        still = await windows.now()
        assert still.known
        assert still.next is not None


async def test_windows_work_without_the_server() -> None:
    """With the server down the provider is asked directly, and an opening comes as foreseen."""
    catalogue, declared = declare(prewarm=timedelta(0))
    with embedded.valkey() as victim:
        async with keyspace.connect(victim.url, catalogue) as store:
            victim.kill()
            await eventually(lambda: not store.client().up)
            schedule = Schedule(SECOND)
            windows = store[declared].using(schedule)
            assert not (await windows.now()).is_open
            await eventually(lambda: windows.last_seen().is_open)
            assert schedule.asked == 1


def test_windows_that_make_no_sense_are_refused() -> None:
    """A negative grace, or a look ahead that is shorter than what is kept."""
    with pytest.raises(InvalidDeclaration, match="grace"):
        declare(grace=-SECOND)
    with pytest.raises(InvalidDeclaration, match="lookahead"):
        declare(lookahead=SECOND)
    with pytest.raises(InvalidDeclaration, match="lifetime"):
        Life(fresh=timedelta(0))


async def test_windows_without_a_source_say_so(server: Valkey) -> None:
    """Who forgot `using` is told."""
    catalogue, declared = declare()
    async with keyspace.connect(server.url, catalogue) as store:
        with pytest.raises(RuntimeError, match="using"):
            await store[declared].now()


async def test_settings_may_change_windows_before_they_are_used(server: Valkey) -> None:
    """A process whose settings say so opens earlier, closes later and looks further; nonsense is refused."""
    catalogue, windows = declare()
    windows.change(prewarm=2 * HOUR, grace=HOUR, lookahead=timedelta(days=14))
    async with keyspace.connect(server.url, catalogue) as store:
        now = await store[windows].using(Schedule(119 * MINUTE)).now()
    assert now.is_open
    assert now.sight == timedelta(days=14)
    with pytest.raises(InvalidDeclaration, match="look ahead further"):
        windows.change(prewarm=HOUR, grace=HOUR, lookahead=SECOND)
    with pytest.raises(InvalidDeclaration):
        windows.change(prewarm=-HOUR, grace=HOUR, lookahead=timedelta(days=1))
    assert windows.prewarm == 2 * HOUR
