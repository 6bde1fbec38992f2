from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from benchmarks.load import Tasks, Threads
from benchmarks.measure import Plan, measure
from benchmarks.outcome import OURS
from benchmarks.rows import Opener, Round, Row
from benchmarks.servers import Servers


def contender(name: str, turns: list[str], fails_at: int | None = None) -> Opener:
    """A contender that notes its turns, and whose figure is the number of its turn."""
    count = 0

    async def measured_round(seconds: float) -> float:
        nonlocal count
        if count == fails_at:
            raise ConnectionError("the server is gone\nsecond line")
        turns.append(name)
        count += 1
        return float(count)

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        yield measured_round

    return opened


def not_installed(servers: Servers) -> AbstractAsyncContextManager[Round]:
    """The opener of a peer that is not there."""
    raise ModuleNotFoundError("No module named 'peer'", name="peer")


async def test_turns_are_interleaved_and_rotate() -> None:
    """Every contender has one turn per round, and none always follows the same one."""
    turns: list[str] = []
    row = Row("row", contender("o", turns), {name: contender(name, turns) for name in "ab"})
    await measure(row, Plan(rounds=2, seconds=0.01), lambda doing, done: None)
    assert turns == ["o", "a", "b", "a", "b", "o", "b", "o", "a"]


async def test_a_row_may_have_more_and_shorter_turns() -> None:
    """They see more of a machine's moods; the warm-up is as long as any row's."""
    asked: list[float] = []

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async def measured_round(seconds: float) -> float:
            asked.append(seconds)
            return float(len(asked))

        yield measured_round

    row = Row("row", opened, turns=4, turn=0.25)
    reported = 0

    def tell(doing: str, turns_done: int) -> None:
        nonlocal reported
        reported += turns_done

    plan = Plan(rounds=2, seconds=0.4)
    outcome = await measure(row, plan, tell)
    assert asked == [pytest.approx(0.2), *[pytest.approx(0.1)] * 8]
    assert len(outcome.figures[OURS]) == 8
    assert reported == plan.for_row(row).turns == 9


async def test_the_warm_up_is_not_counted() -> None:
    """The first turn of each contender leaves no figure."""
    row = Row("row", contender("o", []))
    outcome = await measure(row, Plan(rounds=3, seconds=0.01), lambda doing, done: None)
    assert outcome.figures == {"ephemera": [2, 3, 4]}


async def test_missing_and_failing_peers_are_reported_with_the_reason() -> None:
    """A peer that is not installed or breaks down has no figure, and the report can say why."""
    peers = {"absent": not_installed, "broken": contender("broken", [], fails_at=2)}
    row = Row("row", contender("o", []), peers)
    outcome = await measure(row, Plan(rounds=3, seconds=0.01), lambda doing, done: None)
    assert outcome.missing == {
        "absent": "not installed (peer)",
        "broken": "ConnectionError: the server is gone",
    }
    assert outcome.peers == {"absent": None, "broken": None}


async def test_progress_adds_up_also_when_peers_are_missing() -> None:
    """The bar ends full, whatever became of the contenders."""
    reported = 0

    def tell(doing: str, turns_done: int) -> None:
        nonlocal reported
        reported += turns_done

    peers = {"absent": not_installed, "broken": contender("broken", [], fails_at=2)}
    plan = Plan(rounds=3, seconds=0.01)
    await measure(Row("row", contender("o", []), peers), plan, tell)
    assert reported == 3 * plan.turns


async def test_tasks_do_what_they_are_counted_for() -> None:
    """Every task does its share, and the figure is all operations by the time they took."""
    done = 0

    async def work(count: int) -> None:
        nonlocal done
        for _ in range(count):
            done += 1

    load = Tasks(5, work)
    assert await load(0.01) > 0
    done = 0
    assert await load.perform(100) > 0
    assert done == 500


async def test_a_failing_thread_fails_its_round() -> None:
    """An error in one of the threads is raised by the round, not lost with the thread."""

    def work(count: int) -> None:
        raise ConnectionError("refused")

    with pytest.raises(ConnectionError, match="refused"):
        await Threads(2, work)(0.01)
