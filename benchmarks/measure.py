"""Measuring a row: every contender is opened, warmed up, and then takes its turn in every round.

Interleaving spreads whatever else the machine does over all contenders; the order rotates by one each round,
so that nobody always runs after the same neighbour; the median of the rounds counts. A row may ask for more
and shorter turns in each round. Garbage is collected before each turn, so that nobody pays for another's. The
collector's settings stay as Python has them.
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

Tell = Callable[[str, int], None]
"""Hears what happens now, and how many turns are behind us since the last time."""


@dataclass(frozen=True)
class Plan:
    """How much is measured: rounds that count, and seconds of each; the warm-up comes on top."""

    rounds: int = 5
    seconds: float = 1.0

    @property
    def turns(self) -> int:
        """Turns of one contender, the warm-up included."""
        return self.rounds + 1

    def for_row(self, row: Row) -> Plan:
        """The same with as many and as long turns as the row has."""
        return replace(self, rounds=self.rounds * row.turns, seconds=self.seconds * row.turn)


async def measure(row: Row, plan: Plan, tell: Tell) -> Outcome:
    """The row's outcome."""
    outcome = Outcome(row)
    plan = plan.for_row(row)
    with Servers() as servers:
        async with AsyncExitStack() as open_clients:
            contenders: dict[str, Round] = {}
            for name, opener in {OURS: row.ours, **row.peers}.items():
                tell(f"{name}: connecting", 0)
                try:
                    contenders[name] = await open_clients.enter_async_context(opener(servers))
                except Exception as error:
                    outcome.missing[name] = reason(error)
                    tell(f"{name}: missing", plan.turns)
            await _rounds(contenders, plan, outcome, tell)
    return outcome


async def _rounds(contenders: dict[str, Round], plan: Plan, outcome: Outcome, tell: Tell) -> None:
    order = deque(contenders)
    warm_up = plan.seconds / outcome.row.turn / 2
    for turn in range(plan.turns):
        for name in order:
            if name in outcome.missing:
                continue
            tell(f"{name}: {f'round {turn} of {plan.rounds}' if turn else 'warm-up'}", 0)
            gc.collect()
            try:
                async with asyncio.timeout(plan.seconds + outcome.row.patience):
                    figure = await contenders[name](plan.seconds if turn else warm_up)
            except Exception as error:
                outcome.missing[name] = reason(error)
                tell(f"{name}: failed", plan.turns - turn)
                continue
            if turn:
                outcome.figures.setdefault(name, []).append(figure)
            tell(name, 1)
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
