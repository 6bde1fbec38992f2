"""The outcome of a row: medians, ratios, and whether its targets are met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.rows import Absolute, Row, Target

OURS = "ephemera"


@dataclass
class Outcome:
    """The figures of every round by contender, and why a contender is missing."""

    row: Row
    figures: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def value(self, contender: str) -> float | None:
        """The median of a contender's rounds; None when it is missing."""
        rounds = self.figures.get(contender)
        return median(rounds) if rounds and contender not in self.missing else None

    @property
    def ours(self) -> float | None:
        """Our own figure."""
        return self.value(OURS)

    @property
    def peers(self) -> dict[str, float | None]:
        """Every peer's figure, in the row's order."""
        return {peer: self.value(peer) for peer in self.row.peers}

    def ratio(self, peer: str | None = None) -> float | None:
        """How many times as good as a peer we are, or as the best peer; None when either is missing."""
        theirs = self._best_peer() if peer is None else self.value(peer)
        ours = self.ours
        if not ours or not theirs:
            return None
        return ours / theirs if self.row.higher_is_better else theirs / ours

    @property
    def met(self) -> bool | None:
        """Whether all targets are met; None when a peer that a target names is missing."""
        if self.ours is None:
            return False
        verdicts = [self._judge(target) for target in self.row.targets]
        if False in verdicts:
            return False
        return None if None in verdicts else True

    def unmet(self) -> list[str]:
        """The targets that were missed, each with what was reached instead."""
        return [
            f"{target} ({self._reached(target)})" for target in self.row.targets if not self._judge(target)
        ]

    def as_json(self) -> dict[str, Any]:
        """The entry of results.json."""
        ratio = self.ratio()
        return {
            "name": self.row.name,
            "unit": self.row.unit,
            "ours": _rounded(self.ours),
            "peers": {peer: _rounded(value) for peer, value in self.peers.items()},
            "ratio_to_best_peer": None if ratio is None else round(ratio, 3),
            "target": self.row.target,
            "met": self.met,
        }

    def _best_peer(self) -> float | None:
        known = [value for value in self.peers.values() if value is not None]
        if not known:
            return None
        return max(known) if self.row.higher_is_better else min(known)

    def _judge(self, target: Target) -> bool | None:
        if isinstance(target, Absolute):
            ours = self.ours
            if ours is None:
                return False
            return ours <= target.value if target.at_most else ours >= target.value
        ratio = self.ratio(target.peer)
        return None if ratio is None else ratio >= target.factor

    def _reached(self, target: Target) -> str:
        if self.ours is None:
            return f"no figure: {self.missing.get(OURS, 'not measured')}"
        if isinstance(target, Absolute):
            return f"reached {self.ours:,.5g} {target.unit}"
        ratio = self.ratio(target.peer)
        return "not judged, the peer is missing" if ratio is None else f"reached {ratio:.2f}x"


def merged(
    old: list[dict[str, Any]], new: list[dict[str, Any]], order: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Old entries with the new ones in place of those of the same name, as `order` ranks the names."""
    entries = {entry["name"]: entry for entry in [*old, *new] if entry["name"] in order}
    return sorted(entries.values(), key=lambda entry: order[entry["name"]])


def _rounded(value: float | None) -> float | None:
    """Four significant digits or whole numbers: more would only be noise in the diff."""
    if value is None:
        return None
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")
