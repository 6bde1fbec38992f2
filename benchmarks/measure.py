"""Measures a row: every contender is opened, warmed up, and then runs once in every round.

Interleaving spreads other load on the machine over all contenders. The order rotates by one each round, so
that no contender always runs after the same one. The median of the rounds counts. A row may ask for more and
shorter turns in each round. Garbage is collected before each turn, so that no contender pays for another's;
the collector keeps Python's default settings.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from benchmarks.outcome import OURS, Outcome
from benchmarks.rows import Round, Row
from benchmarks.servers import Servers

OnProgress = Callable[[str, int], None]
"""Called with the current activity and the number of turns completed since the last call."""


@dataclass(frozen=True)
class Plan:
    """How much is measured: rounds that count, and seconds of each, in addition to the warm-up."""

    rounds: int = 5
    seconds: float = 1.0

    @property
    def turns(self) -> int:
        """Turns of one contender, including the warm-up."""
        return self.rounds + 1

    def for_row(self, row: Row) -> Plan:
        """Return the plan with the number and length of turns of the row."""
        return replace(self, rounds=self.rounds * row.turns, seconds=self.seconds * row.turn)


async def measure(row: Row, plan: Plan, on_progress: OnProgress) -> Outcome:
    """Measure a row."""
    outcome = Outcome(row)
    plan = plan.for_row(row)
    with Servers() as servers:
        async with AsyncExitStack() as open_clients:
            contenders: dict[str, Round] = {}
            for name, opener in {OURS: row.ours, **row.peers}.items():
                on_progress(f"{name}: connecting", 0)
                try:
                    contenders[name] = await open_clients.enter_async_context(opener(servers))
                except Exception as error:
                    outcome.missing[name] = reason(error)
                    on_progress(f"{name}: missing", plan.turns)
            await _rounds(contenders, plan, outcome, on_progress)
    return outcome


async def _rounds(
    contenders: dict[str, Round], plan: Plan, outcome: Outcome, on_progress: OnProgress
) -> None:
    order = deque(contenders)
    warm_up = plan.seconds / outcome.row.turn / 2
    for turn in range(plan.turns):
        for name in order:
            if name in outcome.missing:
                continue
            on_progress(f"{name}: {f'round {turn} of {plan.rounds}' if turn else 'warm-up'}", 0)
            gc.collect()
            try:
                async with asyncio.timeout(plan.seconds + outcome.row.patience):
                    figure = await contenders[name](plan.seconds if turn else warm_up)
            except Exception as error:
                outcome.missing[name] = reason(error)
                on_progress(f"{name}: failed", plan.turns - turn)
                continue
            if turn:
                outcome.figures.setdefault(name, []).append(figure)
            on_progress(name, 1)
        order.rotate(-1)


def reason(error: Exception) -> str:
    """Why a contender has no figure, in one line."""
    if isinstance(error, TimeoutError):
        return "a round did not end"
    if isinstance(error, ModuleNotFoundError):
        return f"not installed ({error.name})"
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
