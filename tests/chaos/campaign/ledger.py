"""What was acknowledged, what was refused, what nobody can tell, and what must not have happened.

The `Ledger` counts; the `Timeline` knows when what was disturbed. Together they let a checker tell a broken
promise from what the documentation says may happen while a server is away: such cases are counted as
excused, by their reason, and never silently dropped.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

GRACE = 3.0
"""Seconds after a trouble's end in which a client may not have noticed it: it connects again within half a
second, and a machine that runs a campaign is busy."""


class Timeline:
    """When which part was disturbed, by the monotonic clock."""

    def __init__(self) -> None:
        self._spans: list[tuple[str, float, float]] = []
        self._open: dict[int, tuple[str, float]] = {}
        self._next = 0

    def begin(self, part: str, at: float | None = None) -> int:
        """A part is disturbed from now on, or from then; what to end it by."""
        self._next += 1
        self._open[self._next] = (part, time.monotonic() if at is None else at)
        return self._next

    def end(self, number: int) -> None:
        """A part works again."""
        part, begun = self._open.pop(number)
        self._spans.append((part, begun, time.monotonic()))

    def note(self, part: str, since: float, until: float) -> None:
        """A part was disturbed between two moments."""
        self._spans.append((part, since, until))

    def disturbed(self, parts: tuple[str, ...], since: float, until: float, grace: float = GRACE) -> bool:
        """Whether any of the parts was disturbed between two moments, or shortly before."""
        spans = [*self._spans, *((part, begun, float("inf")) for part, begun in self._open.values())]
        return any(part in parts and begun <= until and end + grace >= since for part, begun, end in spans)

    def spans(self, part: str) -> list[tuple[float, float]]:
        """When a part was disturbed, in order; an open trouble lasts until now."""
        now = time.monotonic()
        found = [(begun, end) for name, begun, end in self._spans if name == part]
        return sorted(found + [(begun, now) for name, begun in self._open.values() if name == part])


@dataclass
class Ledger:
    """Everything that is counted, by `system.what`."""

    timeline: Timeline = field(default_factory=Timeline)
    acknowledged: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def violated(self, system: str, what: str) -> None:
        """Something that was promised did not hold."""
        text = f"{system}: {what}"
        if text not in self.violations:
            self.violations.append(text)

    def expect(self, holds: bool, system: str, promise: str, detail: str = "") -> None:
        """Count a check of a promise, and report it if it does not hold."""
        self.checked[f"{system}: {promise}"] += 1
        if not holds:
            self.violated(system, f"{promise}: {detail}" if detail else promise)
