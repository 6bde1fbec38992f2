"""Coalescing: how many additions share a script call, and that each caller gets its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from ephemera import Store, blocking, keyspace
from ephemera.embedded import Valkey
from ephemera.errors import BacklogFull, ServerError
from ephemera.patterns.write_behind._coalesced_calls import CallSizer, sum_by_counter
from tests.patterns.write_behind_fixtures import CATALOGUE, CLICKS, FEW, VIEWS, WIDE, empty_backlog


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with an empty backlog."""
    async with keyspace.connect(server.url, CATALOGUE) as store:
        await empty_backlog(store)
        yield store


def test_halves_stay_halves_when_both_are_answered_at_once() -> None:
    """Two replies in one read do not shrink the size to a quarter."""
    sizer = CallSizer()
    for _ in range(3):
        sizer.sent(25)
        sizer.sent(25)
        sizer.completed(25)
        sizer.completed(25)
        assert sizer.size == 25
    sizer.sent(20)
    sizer.completed(20)
    assert sizer.size == 10


@pytest.mark.parametrize("outstanding", [1, 16, 300])
def test_few_and_very_many_are_not_halved(outstanding: int) -> None:
    """Half of a few is not worth a call of its own, and half of very many would wait too long."""
    sizer = CallSizer()
    sizer.sent(outstanding)
    sizer.completed(outstanding)
    assert sizer.size == 200


def test_amounts_to_the_same_counter_are_summed() -> None:
    """Each counter appears once, with the sum of its amounts."""
    sums = sum_by_counter([((b"a", 1), (b"b", 2)), ((b"c", 5),), ((b"a", 10), (b"a", -4))])
    assert sums == {b"a": 7, b"b": 2, b"c": 5}


@pytest.mark.on_both_loops
async def test_continuous_load_is_sent_in_halves(store: Store) -> None:
    """Fifty tasks converge to calls of twenty-five additions each, and lose none."""
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
async def test_cancelled_callers_do_not_affect_the_others(store: Store) -> None:
    """An addition that is cancelled after it was sent counts, and the others in its call complete."""
    adding = [asyncio.ensure_future(store[CLICKS].add(page="p", day="mon", clicks=1)) for _ in range(9)]
    await asyncio.sleep(0)  # they are sent together at the end of this tick
    for position in (0, 3, 4, 8):
        adding[position].cancel()
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*adding, return_exceptions=True)
    cancelled = [position for position, outcome in enumerate(outcomes) if outcome is not True]
    assert cancelled == [0, 3, 4, 8]
    assert (await store[CLICKS].pending(page="p", day="mon"))["clicks"] == 9


async def test_names_identify_an_addition_as_much_as_values_do(store: Store) -> None:
    """The same values under other names are another row; in another order they are the same row."""
    add = store[CLICKS].add
    for _ in range(2):
        await add(page="a", day="b", clicks=1)
        await add(day="a", page="b", clicks=1)
        await add(clicks=1, page="a", day="b")
        await add(page="a", day="b", spent=1)
    assert await store[CLICKS].pending(page="a", day="b") == {"clicks": 4, "spent": 2}
    assert await store[CLICKS].pending(page="b", day="a") == {"clicks": 2, "spent": 0}


async def test_more_counters_than_one_call_takes_are_split(store: Store) -> None:
    """Rows with many measures reach the limit of counters long before that of additions."""
    measures: dict[str, Any] = dict.fromkeys(WIDE.measures, 1)
    await asyncio.gather(*(store[WIDE].add(page=f"p{n}", **measures) for n in range(150)))
    assert await store[WIDE].backlog() == 150 * len(measures) > 1000
    assert await store[WIDE].pending(page="p149") == measures


async def test_an_inexact_intermediate_sum_is_not_coalesced(store: Store) -> None:
    """Two additions whose sum exceeds 2**53, although the total does not, are made one by one."""
    add, largest = store[VIEWS].add, 2**53 - 1
    await add(presentation_id="p", view_count=-5)
    together = [add(presentation_id="p", view_count=amount) for amount in (largest, 2)]
    assert await asyncio.gather(*together) == [True, True]
    assert await store[VIEWS].pending(presentation_id="p") == {"view_count": largest + 2 - 5}


@pytest.mark.parametrize("known", [True, False])
def test_an_addition_outside_the_loop_does_not_affect_others(server: Valkey, known: bool) -> None:
    """It is refused, because there is no loop for its future; additions on the store's loop still count."""
    with blocking.connect(server.url, CATALOGUE) as store:
        store.wait(empty_backlog(store.aio))
        views = store.aio[VIEWS]

        async def count() -> bool:
            async with asyncio.timeout(60):
                return await views.add(presentation_id="p", view_count=1)

        assert store.wait(count())
        with pytest.raises(RuntimeError, match="no running event loop"):
            views.add(presentation_id="p" if known else "new", view_count=1)
        assert store.wait(count())
        for counted in (True, False):
            adding = views.add(presentation_id="p", view_count=1, idempotency_key=f"outside:{known}")
            assert isinstance(adding, Coroutine)
            assert store.wait(adding) is counted
        assert store.wait(views.pending(presentation_id="p")) == {"view_count": 3}


@pytest.mark.on_both_loops
async def test_failures_are_counted_and_each_caller_gets_its_own(store: Store) -> None:
    """A refused call is retried addition by addition; those that fail count as errors."""
    largest = 2**53 - 1
    await store[CLICKS].add(page="p", day="mon", spent=largest)
    adding = [store[CLICKS].add(page=page, day="mon", spent=1) for page in "apb"]
    outcomes = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [bool, ServerError, bool]
    assert store[CLICKS].stats.errors == 1
    full = await asyncio.gather(
        *(store[FEW].add(page=page, clicks=1) for page in "abcde"), return_exceptions=True
    )
    assert [type(outcome) for outcome in full] == [bool] * 3 + [BacklogFull] * 2
    assert store[FEW].stats.errors == 2
