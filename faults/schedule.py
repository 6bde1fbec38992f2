"""Which fault comes when: all of it follows from the seed, so the seed of a failure brings the same again.

The kinds of faults are dealt like cards: each of them comes before any of them comes a second time. Whom a
fault hits, how, and for how long is drawn for each. A pause follows, in which things heal. What does not
follow from the seed is how fast this machine is; a replay has the same faults at the same moments, and load
that was drawn from the same numbers, but not the same nanoseconds.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from faults.proxy import TROUBLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KINDS = {
    "kill": "SIGKILL of a service, a worker, the cache, the queue's master or PostgreSQL",
    "stop": "SIGSTOP of a service, a worker, the cache or the queue's master, and SIGCONT later",
    "network": "a line to the cache, the queue or PostgreSQL that is cut, frozen, half-open or slow",
    "failover": "the queue's replica takes over: in an orderly way, from a dead master, or from one cut off",
    "memory": "the cache evicts, or the queue refuses to write",
    "sql": "PostgreSQL answers late, or a table is locked",
    "clock": "the wall clock of a service or a worker jumps, forwards or backwards, and back",
}
LINES = ("cache", "queue", "sql")
_JUMPS = (-86_400.0, -7200.0, -1200.0, -60.0, -5.0, 5.0, 60.0, 600.0, 7200.0, 86_400.0)
_SHORT = 2.5
"""Seconds for which the queue may be away without being replaced (`servers.DOWN_AFTER` is longer)."""


class Fault(NamedTuple):
    """One fault: what happens to whom, how, for how many seconds, and how much of it."""

    at: float
    """Seconds from the beginning."""
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
    """How long faults last, and how long the pauses after them are, in seconds: least and most."""

    fault: tuple[float, float]
    healing: tuple[float, float]


USUAL = Pace(fault=(1.0, 12.0), healing=(4.0, 10.0))
BRISK = Pace(fault=(0.8, 2.0), healing=(1.0, 1.8))
"""For a campaign of a minute: every kind once."""


def schedule(
    seed: int, seconds: float, members: Sequence[str], only: Sequence[str] = (), pace: Pace = USUAL
) -> list[Fault]:
    """The faults of a campaign of so many seconds against these processes, in order."""
    chance = random.Random(seed)
    kinds = tuple(only) or tuple(KINDS)
    faults: list[Fault] = []
    at = chance.uniform(*pace.healing)
    for kind in _dealt(chance, kinds):
        if at >= seconds and (len(faults) >= len(kinds) or pace is USUAL):
            break
        length = round(chance.uniform(*pace.fault), 1)
        fault = _drawn(chance, kind, members, length)._replace(at=round(at, 1))
        faults.append(fault)
        at += fault.seconds + chance.uniform(*pace.healing)
    return faults


def _dealt(chance: random.Random, kinds: Sequence[str]) -> Iterator[str]:
    while True:
        deck = list(kinds)
        chance.shuffle(deck)
        yield from deck


def _drawn(chance: random.Random, kind: str, members: Sequence[str], length: float) -> Fault:
    short = min(length, _SHORT)
    member = chance.choice(members)
    match kind:
        case "kill":
            target = chance.choice([member, member, member, "cache", "queue", "postgres"])
            how = chance.choice(["all of it", "its first process"]) if target == member else "SIGKILL"
            return Fault(0, kind, target, how, 0.0)
        case "stop":
            target = chance.choice([member, member, member, "cache", "queue"])
            return Fault(0, kind, target, "SIGSTOP", short if target == "queue" else length)
        case "network":
            line, how = chance.choice(LINES), chance.choice(TROUBLES)
            late = chance.choice([0.02, 0.1, 0.4]) if how == "delay" else 0.0
            return Fault(0, kind, line, how, short if line == "queue" else length, late)
        case "failover":
            how = chance.choice(["orderly", "orderly", "from a dead master", "from one cut off"])
            return Fault(0, kind, "queue", how, 0.0)
        case "memory":
            target = chance.choice(["cache", "queue"])
            return Fault(0, kind, target, "evicts" if target == "cache" else "refuses", length)
        case "sql":
            how = chance.choice(["late", "locked"])
            late = chance.choice([0.05, 0.2]) if how == "late" else 0.0
            return Fault(0, kind, member.partition("-")[0] if how == "locked" else "sql", how, length, late)
        case _:
            return Fault(0, "clock", member, "jumps", length, chance.choice(_JUMPS))
