"""What a row of the benchmark is: a figure of ours, the same figure of the peers, and what it must reach.

A module such as `benchmarks.wire` lists its rows in `ROWS`; `benchmarks.suite` gathers them. A contender is
opened once per row and gives a round: an awaitable callable that works for about the given seconds and
returns a figure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from benchmarks.servers import Servers

Round = Callable[[float], Awaitable[float]]
"""Works for about this many seconds and returns the figure, in the row's unit."""

Opener = Callable[[Servers], AbstractAsyncContextManager[Round]]
"""Connects a contender to the row's servers; raises when the contender is not installed."""


@dataclass(frozen=True)
class Times:
    """A target relative to a peer, or to the best of them: how many times as good."""

    factor: float
    peer: str | None = None

    def __str__(self) -> str:
        return f"at least {round(self.factor, 2):g}x {self.peer or 'the best peer'}"


@dataclass(frozen=True)
class Absolute:
    """A target in the row's own unit."""

    value: float
    unit: str
    at_most: bool = False

    def __str__(self) -> str:
        return f"at {'most' if self.at_most else 'least'} {self.value:,.10g} {self.unit}"


Target = Times | Absolute


@dataclass(frozen=True)
class Row:
    """One line of the table; all its targets must be met."""

    name: str
    ours: Opener
    peers: Mapping[str, Opener] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    unit: str = "ops/s"
    higher_is_better: bool = True
    patience: float = 30.0
    """Seconds over its plan after which a turn is given up."""
    turns: int = 1
    """Turns that a contender has in each round: the more, the less the machine's mood matters."""
    turn: float = 1.0
    """The length of a turn, as a part of the plan's."""

    @property
    def target(self) -> str:
        """All targets in words."""
        return " and ".join(map(str, self.targets))
