"""What was acknowledged, what was refused, what is unknown, and which guarantees were violated.

The `Ledger` counts; the `Timeline` records when each part was disturbed. Together they let a checker
distinguish a violation from what the documentation allows while a server is down: such cases are counted as
excused, by reason, and never silently dropped.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

GRACE = 3.0
"""Seconds after the end of a fault in which a client may not have noticed it: it reconnects within half a
second, and a machine that runs a campaign is busy."""


class Timeline:
    """When which part was disturbed, by the monotonic clock."""

    def __init__(self) -> None:
        self._spans: list[tuple[str, float, float]] = []
        self._open: dict[int, tuple[str, float]] = {}
        self._next = 0

    def begin(self, part: str, at: float | None = None) -> int:
        """Record that a part is disturbed from now, or from `at`; return a number for `end`."""
        self._next += 1
        self._open[self._next] = (part, time.monotonic() if at is None else at)
        return self._next

    def end(self, number: int) -> None:
        """Record that a part works again."""
        part, begun = self._open.pop(number)
        self._spans.append((part, begun, time.monotonic()))

    def note(self, part: str, since: float, until: float) -> None:
        """Record that a part was disturbed between two times."""
        self._spans.append((part, since, until))

    def disturbed(self, parts: tuple[str, ...], since: float, until: float, grace: float = GRACE) -> bool:
        """Whether any of the parts was disturbed between two times, or shortly before."""
        spans = [*self._spans, *((part, begun, float("inf")) for part, begun in self._open.values())]
        return any(part in parts and begun <= until and end + grace >= since for part, begun, end in spans)

    def spans(self, part: str) -> list[tuple[float, float]]:
        """Return when a part was disturbed, in order; an open disturbance lasts until now."""
        now = time.monotonic()
        found = [(begun, end) for name, begun, end in self._spans if name == part]
        return sorted(found + [(begun, now) for name, begun in self._open.values() if name == part])


@dataclass
class Ledger:
    """All counts, by `service.what`."""

    timeline: Timeline = field(default_factory=Timeline)
    acknowledged: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def violated(self, system: str, what: str) -> None:
        """Record a violated guarantee."""
        text = f"{system}: {what}"
        if text not in self.violations:
            self.violations.append(text)

    def expect(self, holds: bool, system: str, guarantee: str, detail: str = "") -> None:
        """Count a check of a guarantee, and record a violation if it does not hold."""
        self.checked[f"{system}: {guarantee}"] += 1
        if not holds:
            self.violated(system, f"{guarantee}: {detail}" if detail else guarantee)
