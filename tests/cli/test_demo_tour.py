"""`ephemera demo --tour`, and demos that are stopped while they start."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ephemera_services.demo import tour
from ephemera_services.demo.external_servers import ServerUrls
from ephemera_services.demo.screen import Screen
from ephemera_services.demo.servers import Servers
from ephemera_services.demo.tour import CheckFailed, RunningDemo, Step, StepContext
from tests.child_processes import survivors
from tests.cli.demo_process import TIMEOUT, running_demo


@pytest.mark.timeout(400)
def test_the_tour_passes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Every step is printed with its result and passes on embedded servers, and nothing is left behind."""
    with running_demo(tmp_path, "--tour") as running:
        running.wait_until(lambda: "processes started" in running.printed, "the start")
        descendants = running.descendants()
        assert running.process.wait(2 * TIMEOUT) == 0, running.printed
        printed = running.printed
    assert not survivors(descendants, within=30)
    assert printed.count("✓ passed") == len(tour.STEPS)
    assert f"All {len(tour.STEPS)} steps passed." in printed
    for shown in (
        "the phone reads the profile with its unexpired token → 401",
        "the same refresh token is used again, as by a thief → 401",
        "retry-after:",
        "cached are → ['gl:passage:{john.3.16}']",
        "gets SIGKILL",
        "slides 1 to 7, each exactly once, in order",
        "the next poll with the old ETag → 200, 3:2",
        "5 new votes, each exactly once",
        "without Redis, build another reader's feed → version 1",
        "a wrong password → 401",
        "Everything is stopped and removed.",
    ):
        assert shown in printed


@pytest.mark.timeout(400)
def test_a_demonstration_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """SIGKILL of the demo also ends its servers, services, workers and their child processes."""
    with running_demo(tmp_path) as running:
        running.wait_until_ready()
        assert running.stop(signal.SIGKILL) == -signal.SIGKILL


@pytest.mark.timeout(400)
def test_a_demo_that_is_stopped_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    """SIGTERM while its processes are not ready yet stops all of them in order."""
    with running_demo(tmp_path) as running:
        running.wait_until(lambda: len(running.descendants()) >= 15, "its processes")
        assert running.stop(signal.SIGTERM) == 0
    assert "Everything is stopped and removed." in running.printed


def _demo(**servers: Any) -> RunningDemo:
    """A demo without processes, for steps that need none."""
    defaults: dict[str, Any] = {
        "cache_url": "redis://127.0.0.1:1",
        "queue_url": "redis://127.0.0.1:1",
        "database_url": "postgresql://127.0.0.1/none",
        "embedded_redis": (),
        "external": ServerUrls(),
    }
    screen = Screen()
    screen.console = Console(record=True, width=200)
    nothing: Any = None
    return RunningDemo(nothing, Servers(**{**defaults, **servers}), nothing, nothing, screen)


async def test_a_failed_step_is_reported_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One step fails: the tour says which and why, continues, and fails at the end."""

    async def fails(context: StepContext) -> None:
        context.report("something is done", "surprise")
        raise CheckFailed("an unexpected result")

    async def passes(context: StepContext) -> None:
        context.check(True, "")

    steps = (Step("feed", "this one fails", fails), Step("league", "this one passes", passes))
    monkeypatch.setattr(tour, "STEPS", steps)
    demo = _demo()
    assert not await tour.run_steps(demo)
    printed = demo.screen.console.export_text()
    assert "something is done → surprise" in printed
    assert "✗ an unexpected result" in printed
    assert printed.index("✓ passed") > printed.index("✗")
    assert "Failed: step 1 (this one fails)." in printed


async def test_an_external_redis_is_never_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that stops Redis is skipped where Redis is not embedded, and says so."""
    step = next(each for each in tour.STEPS if "Redis is stopped" in each.title)
    monkeypatch.setattr(tour, "STEPS", (step,))
    demo = _demo(external=ServerUrls(url="redis://127.0.0.1:1"))
    assert await tour.run_steps(demo)
    printed = demo.screen.console.export_text()
    assert "- skipped: Redis is not embedded" in printed
    assert "All 0 steps passed, 1 skipped." in printed
