"""The rule by which a soak is judged, and the table that it prints (see the package)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

Phase = Literal["before", "warm-up", "plateau", "traffic", "after"]
RESOURCES = ("memory", "descriptors", "sql", "redis")


class Reading(NamedTuple):
    """What a process used at one moment; memory is in MB, and `at` in seconds since the start."""

    process: str
    phase: Phase
    memory: float
    descriptors: int
    sql: int
    redis: int
    at: float = 0.0


@dataclass(frozen=True)
class Finding:
    """One resource of one process, and the bound that it must come back to."""

    process: str
    resource: str
    before: float
    plateau: float
    peak: float
    after: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether it came back."""
        return self.after <= self.bound


def judge(readings: Sequence[Reading]) -> list[Finding]:
    """Judge each resource of each process."""
    names = dict.fromkeys(reading.process for reading in readings)
    return [
        _judge(name, resource, [each for each in readings if each.process == name])
        for name in names
        for resource in RESOURCES
    ]


def _judge(process: str, resource: str, readings: Iterable[Reading]) -> Finding:
    values: dict[str, list[float]] = {}
    for reading in readings:
        values.setdefault(reading.phase, []).append(getattr(reading, resource))
    before, plateau = median(values["before"]), median(values["plateau"])
    bounds = {"memory": plateau * 1.1 + 16, "sql": before + 3}
    return Finding(
        process,
        resource,
        before,
        plateau,
        max(max(each) for each in values.values()),
        min(values["after"]),
        bounds.get(resource, plateau + 4),
    )


def table(findings: Iterable[Finding]) -> str:
    """A line for each finding."""
    lines = [f"{'process':<18}{'resource':<13}{'before':>8}{'plateau':>9}{'peak':>8}{'after':>8}{'bound':>8}"]
    for each in findings:
        numbers = (
            f"{each.before:>8.0f}{each.plateau:>9.0f}{each.peak:>8.0f}{each.after:>8.0f}{each.bound:>8.0f}"
        )
        lines.append(
            f"{each.process:<18}{each.resource:<13}{numbers}{'' if each.holds else '  did not come back'}"
        )
    return "\n".join(lines)


def as_csv(readings: Iterable[Reading]) -> str:
    """Every reading as a line, to plot a process over time."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(Reading._fields)
    lines.writerows(each._replace(memory=round(each.memory, 1), at=round(each.at, 1)) for each in readings)
    return written.getvalue()
