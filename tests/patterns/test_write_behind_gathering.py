"""What leaves together: how many, and that each who waits is told what came of its own addition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from ephemera import Store, keyspace, sync
from ephemera.embedded import Valkey
from ephemera.errors import BacklogFull, ServerError
from ephemera.patterns.write_behind._coalescing import Pace, summed
from tests.patterns.behind import CATALOGUE, CLICKS, FEW, VIEWS, WIDE, emptied


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store in which nothing waits."""
    async with keyspace.connect(server.url, CATALOGUE) as store:
        await emptied(store)
        yield store


def test_halves_stay_halves_when_both_are_answered_at_once() -> None:
    """The second answer of a read finds half of them back already, which makes the others no fewer."""
    pace = Pace()
    for _ in range(3):
        pace.left(25)
        pace.left(25)
        pace.answered(25)
        pace.answered(25)
        assert pace.together == 25
    pace.left(20)
    pace.answered(20)
    assert pace.together == 10


@pytest.mark.parametrize("under_way", [1, 16, 300])
def test_few_and_very_many_leave_when_they_come(under_way: int) -> None:
    """A half of few is not worth a script, and of very many the first need not wait for half of them."""
    pace = Pace()
    pace.left(under_way)
    pace.answered(under_way)
    assert pace.together == 200


def test_amounts_to_the_same_counter_are_summed() -> None:
    """Each counter once, with all that is added to it."""
    sums = summed([((b"a", 1), (b"b", 2)), ((b"c", 5),), ((b"a", 10), (b"a", -4))])
    assert sums == {b"a": 7, b"b": 2, b"c": 5}


@pytest.mark.on_both_loops
async def test_tasks_that_count_all_the_time_leave_in_halves(store: Store) -> None:
    """Fifty tasks settle to scripts of twenty-five additions each, and lose none."""
    views = store[VIEWS]

    async def count(times: int) -> None:
        for number in range(times):
            assert await views.add(presentation_id=f"p{number}", view_count=1)

    await asyncio.gather(*(count(10) for _ in range(50)))
    before = views.stats.writes
    await asyncio.gather(*(count(100) for _ in range(50)))
    assert views.stats.writes - before == pytest.approx(5000 / 25, rel=0.1)
    assert await views.pending(presentation_id="p5") == {"view_count": 100}


@pytest.mark.on_both_loops
async def test_those_who_were_cancelled_cost_nobody_an_answer(store: Store) -> None:
    """Cancelled after it left, an addition counts; those before and after it in the script are answered."""
    adding = [asyncio.ensure_future(store[CLICKS].add(page="p", day="mon", clicks=1)) for _ in range(9)]
    await asyncio.sleep(0)  # they leave together at the end of this tick
    for place in (0, 3, 4, 8):
        adding[place].cancel()
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*adding, return_exceptions=True)
    cancelled = [place for place, outcome in enumerate(outcomes) if outcome is not True]
    assert cancelled == [0, 3, 4, 8]
    assert (await store[CLICKS].pending(page="p", day="mon"))["clicks"] == 9


async def test_names_make_an_addition_as_much_as_values_do(store: Store) -> None:
    """The same values under other names are another row, and in another order the same one."""
    add = store[CLICKS].add
    for _ in range(2):
        await add(page="a", day="b", clicks=1)
        await add(day="a", page="b", clicks=1)
        await add(clicks=1, page="a", day="b")
        await add(page="a", day="b", spent=1)
    assert await store[CLICKS].pending(page="a", day="b") == {"clicks": 4, "spent": 2}
    assert await store[CLICKS].pending(page="b", day="a") == {"clicks": 2, "spent": 0}


async def test_more_counters_than_one_script_takes_leave_in_parts(store: Store) -> None:
    """Rows of many measures reach the script's limit long before the additions reach theirs."""
    measures: dict[str, Any] = dict.fromkeys(WIDE.measures, 1)
    await asyncio.gather(*(store[WIDE].add(page=f"p{n}", **measures) for n in range(150)))
    assert await store[WIDE].waiting() == 150 * len(measures) > 1000
    assert await store[WIDE].pending(page="p149") == measures


async def test_a_sum_that_is_inexact_on_its_way_is_not_gathered(store: Store) -> None:
    """Two additions whose sum is beyond 2**53, though what comes of it is not, are made one by one."""
    add, most = store[VIEWS].add, 2**53 - 1
    await add(presentation_id="p", view_count=-5)
    together = [add(presentation_id="p", view_count=amount) for amount in (most, 2)]
    assert await asyncio.gather(*together) == [True, True]
    assert await store[VIEWS].pending(presentation_id="p") == {"view_count": most + 2 - 5}


@pytest.mark.parametrize("known", [True, False])
def test_an_addition_outside_the_loop_harms_no_other(server: Valkey, known: bool) -> None:
    """It is refused, as there is nothing to wait with; those on the store's loop count on."""
    with sync.connect(server.url, CATALOGUE) as store:
        store.wait(emptied(store.aio))
        views = store.aio[VIEWS]

        async def count() -> bool:
            async with asyncio.timeout(60):
                return await views.add(presentation_id="p", view_count=1)

        assert store.wait(count())
        with pytest.raises(RuntimeError, match="no running event loop"):
            views.add(presentation_id="p" if known else "new", view_count=1)
        assert store.wait(count())
        for counted in (True, False):
            adding = views.add(presentation_id="p", view_count=1, once=f"outside:{known}")
            assert isinstance(adding, Coroutine)
            assert store.wait(adding) is counted
        assert store.wait(views.pending(presentation_id="p")) == {"view_count": 3}


@pytest.mark.on_both_loops
async def test_failures_are_counted_and_each_is_told_its_own(store: Store) -> None:
    """What the server refused of a script is tried one by one; those that fail are errors."""
    most = 2**53 - 1
    await store[CLICKS].add(page="p", day="mon", spent=most)
    adding = [store[CLICKS].add(page=page, day="mon", spent=1) for page in "apb"]
    outcomes = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [bool, ServerError, bool]
    assert store[CLICKS].stats.errors == 1
    full = await asyncio.gather(
        *(store[FEW].add(page=page, clicks=1) for page in "abcde"), return_exceptions=True
    )
    assert [type(outcome) for outcome in full] == [bool] * 3 + [BacklogFull] * 2
    assert store[FEW].stats.errors == 2
