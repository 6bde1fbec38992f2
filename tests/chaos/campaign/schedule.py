"""The schedule of faults: it follows from the seed alone, so the seed of a failure repeats it.

The kinds of faults are dealt like cards: each kind occurs once before any kind occurs again. The same holds
for the targets of a kind, one process of each sort first, and for its variants. The duration is random. A
pause follows, in which the services recover. The speed of the machine does not follow from the seed: a
replay has the same faults at the same times, and a load drawn from the same numbers, but not the same
interleaving.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from tests.chaos.campaign.proxy import TROUBLES

KINDS = {
    "kill": "SIGKILL of a service, a worker, the cache, the queue's master or PostgreSQL",
    "stop": "SIGSTOP of a service, a worker, the cache or the queue's master, and SIGCONT later",
    "network": "a line to the cache, the queue or PostgreSQL that is cut, frozen, half-open or slow",
    "failover": "the queue's replica takes over: orderly, from a dead master, or from one that is cut off",
    "memory": "the cache evicts, or the queue refuses to write",
    "sql": "PostgreSQL answers late, or a table is locked",
    "clock": "the wall clock of a service or a worker jumps, forwards or backwards, and back",
}
LINES = ("cache", "queue", "sql")
_JUMPS = (-86_400.0, -7200.0, -1200.0, -60.0, -5.0, 5.0, 60.0, 600.0, 7200.0, 86_400.0)
_SHORT = 2.5
"""Seconds for which the queue may be down without a failover (`servers.DOWN_AFTER` is longer)."""


class Fault(NamedTuple):
    """One fault: its kind, target, variant, duration in seconds, and amount."""

    at: float
    """Seconds from the start."""
    kind: str
    target: str
    how: str
    seconds: float
    amount: float = 0.0

    def __str__(self) -> str:
        amount = f" by {self.amount:+g} s" if self.amount else ""
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.kind} {self.target}: {self.how}{amount}{lasting}"


class Pace(NamedTuple):
    """The shortest and longest duration of faults, and of the pauses after them, in seconds."""

    fault: tuple[float, float]
    healing: tuple[float, float]


NORMAL = Pace(fault=(1.0, 12.0), healing=(4.0, 10.0))
FAST = Pace(fault=(0.8, 2.0), healing=(1.0, 1.8))
"""For a campaign of less than two minutes."""


def schedule(
    seed: int, seconds: float, members: Sequence[str], only: Sequence[str] = (), pace: Pace = NORMAL
) -> list[Fault]:
    """Return the faults of a campaign against these processes, in order; each kind occurs."""
    chance = random.Random(seed)
    cards = _Cards(chance)
    kinds = tuple(only) or tuple(KINDS)
    faults: list[Fault] = []
    at = chance.uniform(*pace.healing)
    while at < seconds or len(faults) < len(kinds):
        kind = cards.deal("kind", kinds)
        target = cards.deal(f"target of {kind}", targets(kind, members))
        length = round(chance.uniform(*pace.fault), 1)
        fault = _draw(chance, cards, kind, target, length)._replace(at=round(at, 1))
        faults.append(fault)
        at += fault.seconds + chance.uniform(*pace.healing)
    return faults


def targets(kind: str, members: Sequence[str]) -> list[str]:
    """Return the possible targets of a kind of fault."""
    match kind:
        case "kill":
            return [*members, "cache", "queue", "postgres"]
        case "stop":
            return [*members, "cache", "queue"]
        case "network":
            return list(LINES)
        case "failover":
            return ["queue"]
        case "memory":
            return ["cache", "queue"]
        case "sql":  # answers late, or a table of a system is locked
            return ["sql", *dict.fromkeys(member.partition("-")[0] for member in members)]
        case _:
            return list(members)


class _Cards:
    """Shuffled piles by name: each card of a pile is dealt once before one is dealt again."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._piles: dict[str, list[str]] = {}

    def deal(self, pile: str, cards: Sequence[str]) -> str:
        """Deal the next card of a pile; an empty pile is shuffled from these cards."""
        left = self._piles.get(pile)
        if not left:
            left = self._piles[pile] = self._shuffled(cards)
        return left.pop(0)

    def _shuffled(self, cards: Sequence[str]) -> list[str]:
        """Shuffle, but with the second process of a sort (`feed-1`) after the first of every sort."""
        mixed = self._chance.sample(cards, len(cards))
        sorts = [_sort(card) for card in mixed]
        return sorted(mixed, key=lambda card: _sort(card) in sorts[: mixed.index(card)])


def _sort(card: str) -> str:
    """Return a process without its number; anything else is its own sort."""
    return card.rstrip("0123456789")


def _draw(chance: random.Random, cards: _Cards, kind: str, target: str, length: float) -> Fault:
    def way(*ways: str) -> str:
        return cards.deal(f"way of {kind} {_sort(target)}", ways)

    if target == "queue" and kind in ("stop", "network"):
        length = min(length, _SHORT)
    match kind:
        case "kill":
            is_server = target in ("cache", "queue", "postgres")
            how = "SIGKILL" if is_server else way("all of it", "its first process")
            return Fault(0, kind, target, how, 0.0)
        case "stop":
            return Fault(0, kind, target, "SIGSTOP", length)
        case "network":
            how = way(*TROUBLES)
            late = chance.choice([0.02, 0.1, 0.4]) if how == "delay" else 0.0
            return Fault(0, kind, target, how, length, late)
        case "failover":
            how = way("orderly", "orderly", "from a dead master", "from one cut off")
            return Fault(0, kind, target, how, 0.0)
        case "memory":
            return Fault(0, kind, target, "evicts" if target == "cache" else "refuses", length)
        case "sql":
            late = chance.choice([0.05, 0.2]) if target == "sql" else 0.0
            return Fault(0, kind, target, "late" if late else "locked", length, late)
        case _:
            return Fault(0, "clock", target, "jumps", length, chance.choice(_JUMPS))
