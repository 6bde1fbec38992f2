"""The fuzzer: Hypothesis generates cases and shrinks failing ones, reproducibly from a seed.

Each batch has its own seed, drawn from the given one, so a long run does not repeat cases. A trial that
failed is not continued in the same run. A check that exceeds its trial's timeout has failed, too: no input
may make anything hang.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.errors import HypothesisWarning
from hypothesis.strategies import SearchStrategy

from ephemera_services.runtime import minimum_log_level
from tests.fuzz.trials import Area, Trial

_LOG_LEVEL = logging.CRITICAL  # of our own log: connections are lost here by the thousand
_SETTINGS: dict[str, Any] = {
    "database": None,
    "deadline": None,
    "phases": (Phase.generate, Phase.target, Phase.shrink),
    "suppress_health_check": list(HealthCheck),
    "verbosity": Verbosity.quiet,
    "print_blob": False,
    "report_multiple_bugs": False,
}


@dataclass
class Tally:
    """The counts of one trial."""

    area: str
    trial: Trial
    cases: int = 0
    seconds: float = 0.0
    failure: Failure | None = None


@dataclass(frozen=True)
class Failure:
    """A case that violated a guarantee, shrunk."""

    area: str
    trial: str
    case: Any
    error: str


@dataclass
class Budget:
    """How long an area is fuzzed: for some seconds, in batches, or for a number of cases of each trial."""

    seconds: float = 0.0
    cases: int = 0
    _ends: float = field(default=0.0, init=False)

    def begin(self) -> None:
        """Start the clock."""
        self._ends = time.monotonic() + self.seconds

    @property
    def spent(self) -> bool:
        """Whether to stop, once each trial has run at least once."""
        return time.monotonic() >= self._ends


def fuzz_area(
    area: Area,
    seed: int,
    budget: Budget,
    folder: Path,
    tell: Callable[[Tally], None] = lambda _: None,
    *,
    services: bool = True,
) -> list[Tally]:
    """Try an area's trials in turn until the budget is spent; without `services`, those that need none."""
    warnings.simplefilter("ignore", HypothesisWarning)  # that a strategy with large pieces is long when shown
    seeds = random.Random(f"{area.name}:{seed}")
    with minimum_log_level(_LOG_LEVEL), asyncio.Runner() as runner:
        opened = area.opened(folder)
        trials = runner.run(opened.__aenter__())
        tallies = [Tally(area.name, trial) for trial in trials if services or not trial.needs_services]
        budget.begin()
        try:
            while not (all(tally.cases for tally in tallies) and budget.spent):
                for tally in tallies:
                    drawn = seeds.getrandbits(64)
                    if tally.failure is None and not (tally.cases and budget.spent):
                        _try_batch(runner, tally, drawn, budget.cases or tally.trial.batch)
                        tell(tally)
                if all(tally.failure for tally in tallies):
                    break
        finally:
            runner.run(opened.__aexit__(None, None, None))
    return tallies


def replay_cases(area: Area, cases: Iterable[tuple[str, Any]], folder: Path) -> None:
    """Check cases of an area's trials by name; what it raises is the failure."""
    with minimum_log_level(_LOG_LEVEL), asyncio.Runner() as runner:
        opened = area.opened(folder)
        trials = {trial.name: trial for trial in runner.run(opened.__aenter__())}
        try:
            for name, case in cases:
                _check(runner, trials[name], case)
        finally:
            runner.run(opened.__aexit__(None, None, None))


def _try_batch(runner: asyncio.Runner, tally: Tally, seed: int, cases: int) -> None:
    begun = time.monotonic()
    last: list[Any] = []

    def attempt(case: Any) -> None:
        tally.cases += 1
        last[:] = [case]  # the last one that is tried is the smallest that fails
        _check(runner, tally.trial, case)

    try:
        _attempts(attempt, tally.trial, seed, cases)
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        tally.failure = Failure(tally.area, tally.trial.name, last[0] if last else None, text)
    tally.seconds += time.monotonic() - begun


def _attempts(attempt: Callable[[Any], None], trial: Trial, seed: int, cases: int) -> None:
    if isinstance(trial.cases, SearchStrategy):
        settings = hypothesis.settings(max_examples=cases, **_SETTINGS)
        hypothesis.seed(seed)(settings(hypothesis.given(trial.cases)(attempt)))()
    else:
        drawing = random.Random(seed)
        for _ in range(cases):
            attempt(trial.cases(drawing))


def _check(runner: asyncio.Runner, trial: Trial, case: Any) -> None:
    unseen: list[dict[str, Any]] = []

    async def within_time() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        async with asyncio.timeout(trial.patience):
            checked = trial.check(case)
            if inspect.isawaitable(checked):
                await checked

    with _limited_to(trial.patience * 2):
        runner.run(within_time())
    if unseen:
        raise AssertionError(f"an unawaited task failed: {unseen[0]}") from unseen[0].get("exception")


@contextmanager
def _limited_to(seconds: float) -> Iterator[None]:
    """Interrupt what holds up the loop itself, such as a regular expression."""

    def interrupt(*_: object) -> None:
        raise TimeoutError(f"it computed for more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    begun = time.monotonic()
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # of another owner, such as pytest-timeout
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - begun)), again)
