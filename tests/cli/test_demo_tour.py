"""`ephemera demo --tour`, and demonstrations that are ended while they start."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ephemera_services.demo import tour
from ephemera_services.demo.flag_errors import Given
from ephemera_services.demo.run import Stage
from ephemera_services.demo.screen import Screen
from ephemera_services.demo.servers import Servers
from ephemera_services.demo.tour.guide import DidNotHold, Guide, Step
from tests.cli.demonstrations import PATIENCE, demonstrating


@pytest.mark.timeout(400)
def test_the_tour_holds_and_leaves_nothing(tmp_path: Path) -> None:
    """Every step is shown with its result, all of them hold on servers of its own, and nothing is left."""
    with demonstrating(tmp_path, "--tour") as running:
        running.until(lambda: "processes run" in running.printed, "the start")
        family = running.family()
        assert running.process.wait(2 * PATIENCE) == 0, running.printed
        printed = running.printed
    assert not [each for each in family if each.is_running()]
    assert printed.count("✓ held") == len(tour.STEPS)
    assert f"All {len(tour.STEPS)} steps held." in printed
    for shown in (
        "the phone reads the profile with its token, which is valid for 15 minutes → 401",
        "a thief uses the same one again → 401",
        "retry-after:",
        "in the cache are → ['gl:passage:{john.3.16}']",
        "gets SIGKILL",
        "slides 1 to 7, each once, in order",
        "the next poll with the old ETag → 200, 3:2",
        "5 more votes, each once",
        "without Redis, another reader's feed is built → version 1",
        "a wrong password → 401",
        "All of it is gone.",
    ):
        assert shown in printed


@pytest.mark.timeout(400)
def test_a_demonstration_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """SIGKILL of the demonstration ends its servers, services, workers and their processes."""
    with demonstrating(tmp_path) as running:
        running.wait_until_ready()
        assert running.end(signal.SIGKILL) == -signal.SIGKILL


@pytest.mark.timeout(400)
def test_a_demonstration_that_is_told_to_stop_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM when its servers and processes are there, but not ready: all of them go, in good order."""
    with demonstrating(tmp_path) as running:
        running.until(lambda: len(running.family()) >= 15, "its processes")
        assert running.end(signal.SIGTERM) == 0
    assert "All of it is gone." in running.printed


def _stage(**servers: Any) -> Stage:
    """A stage without processes, for steps that need none."""
    usual: dict[str, Any] = {
        "cache_url": "redis://127.0.0.1:1",
        "queue_url": "redis://127.0.0.1:1",
        "database_url": "postgresql://127.0.0.1/none",
        "own": (),
        "given": Given(),
    }
    screen = Screen()
    screen.console = Console(record=True, width=200)
    nothing: Any = None
    return Stage(nothing, Servers(**{**usual, **servers}), nothing, nothing, screen)


async def test_a_step_that_does_not_hold_is_named_and_the_others_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One step fails: the tour says which and why, goes on, and has failed."""

    async def fails(guide: Guide) -> None:
        guide.tell("something is done", "surprise")
        raise DidNotHold("it was not as it should be")

    async def holds(guide: Guide) -> None:
        guide.hold(True, "")

    steps = (Step("feed", "this one fails", fails), Step("league", "this one holds", holds))
    monkeypatch.setattr(tour, "STEPS", steps)
    stage = _stage()
    assert not await tour.toured(stage)
    printed = stage.screen.console.export_text()
    assert "something is done → surprise" in printed
    assert "✗ it was not as it should be" in printed
    assert printed.index("✓ held") > printed.index("✗")
    assert "Did not hold: step 1 (this one fails)." in printed


async def test_a_redis_of_the_users_is_never_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that stops Redis is skipped where Redis is not the demonstration's own, and says so."""
    step = next(each for each in tour.STEPS if "Redis is stopped" in each.title)
    monkeypatch.setattr(tour, "STEPS", (step,))
    stage = _stage(given=Given(url="redis://127.0.0.1:1"))
    assert await tour.toured(stage)
    printed = stage.screen.console.export_text()
    assert "- skipped: Redis is not the demonstration's own" in printed
    assert "All 0 steps held, 1 skipped." in printed
