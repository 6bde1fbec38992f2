"""Hit ratios of keyspaces and latencies of calls over the last hours, kept in a small file if there is one.

Each minute becomes a point with what `HitRatios` has counted since the one before. The points are a ring of
six hours, so memory and file are bounded. The file is replaced as a whole, readable by its owner only; one
that is missing, damaged or of another version is ignored, because history is only a convenience.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

import msgspec

from ephemera.wire import LATENCY_BOUNDS

if TYPE_CHECKING:
    from ephemera.console._connections import Service

log = logging.getLogger(__name__)
INTERVAL = 60.0
"""Seconds between two points."""
MAX_POINTS = 360
"""Points that are kept."""
_MAX_KEYSPACES = 300  # of a service in one point: those used most
_VERSION = 1
_MAX_FILE = 64 * 1024 * 1024  # bytes that are read back
QUANTILES = {"median": 0.5, "95 %": 0.95, "99 %": 0.99}
"""The shares of calls that plots of latencies show, by the name of their line."""

Line = list[tuple[float, float | None]]
"""The points of a plot: Unix times and values."""


class Counted(msgspec.Struct, array_like=True):
    """What a service has counted in one interval."""

    lookups: dict[str, tuple[int, int]]
    """Hits and misses by pattern; patterns without lookups are left out."""
    durations: list[int]
    """Calls by duration, see `LATENCY_BOUNDS`."""
    by_keyspace: dict[str, list[int]] = {}
    """Round trips by duration for each pattern that had some."""


class HistoryPoint(msgspec.Struct, array_like=True):
    """One interval."""

    at: float
    services: dict[str, Counted]


class _Saved(msgspec.Struct, array_like=True):
    version: int
    points: list[HistoryPoint]


class History:
    """The ring of points, saved to `path` if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self.points: deque[HistoryPoint] = deque(maxlen=MAX_POINTS)
        self._path = path
        if path is not None:
            self.points.extend(_load(path))

    async def run(self, services: Sequence[Service]) -> None:
        """Add a point each minute until cancelled."""
        while any(service.hit_ratios.urls for service in services):
            await asyncio.sleep(INTERVAL)
            self.add(
                HistoryPoint(
                    time(), {service.name: service.hit_ratios.take_counted() for service in services}
                )
            )
            await asyncio.to_thread(self.save)

    def add(self, point: HistoryPoint) -> None:
        """Add a point; the oldest one goes when there are too many."""
        for counted in point.services.values():
            for figures in (counted.lookups, counted.by_keyspace):
                _keep_busiest(figures)
        self.points.append(point)

    def hit_ratio(self, service: str, pattern: str) -> Line:
        """A keyspace's share of hits in percent, by interval; None where it had no lookups."""
        return [(at, _percent(counted.lookups.get(pattern))) for at, counted in self._of(service)]

    def latency(self, service: str, quantile: float, pattern: str | None = None) -> Line:
        """The seconds that this share of calls did not exceed, by interval; of one keyspace, or of all."""
        return [
            (
                at,
                duration_at(
                    each.durations if pattern is None else each.by_keyspace.get(pattern, []), quantile
                ),
            )
            for at, each in self._of(service)
        ]

    def _of(self, service: str) -> Iterator[tuple[float, Counted]]:
        return ((each.at, each.services[service]) for each in self.points if service in each.services)

    def save(self) -> None:
        """Write the points to the file, if there is one."""
        path = self._path
        if path is None:
            return
        saved = msgspec.msgpack.encode(_Saved(_VERSION, list(self.points)))
        part = path.with_name(f"{path.name}.part")
        try:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(saved)
            part.replace(path)
        except OSError as error:
            log.warning("the history could not be saved", extra={"because": error.strerror})


def _keep_busiest(figures: dict[str, Any]) -> None:
    """Drop all patterns but those with the most lookups or calls."""
    for pattern in sorted(figures, key=lambda each: -sum(figures[each]))[_MAX_KEYSPACES:]:
        del figures[pattern]


def duration_at(durations: Sequence[int], quantile: float) -> float | None:
    """The upper bound of the calls up to this quantile; None without calls, the last bound beyond it."""
    summed = list(accumulate(durations))
    if not summed or not summed[-1]:
        return None
    return LATENCY_BOUNDS[min(bisect_left(summed, quantile * summed[-1]), len(LATENCY_BOUNDS) - 1)]


def _percent(lookups: tuple[int, int] | None) -> float | None:
    return 100 * lookups[0] / sum(lookups) if lookups and sum(lookups) else None


def _load(path: Path) -> list[HistoryPoint]:
    try:
        if path.stat().st_size > _MAX_FILE:
            return []
        saved = msgspec.msgpack.decode(path.read_bytes(), type=_Saved)
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        log.warning("the history is damaged, and is started over")
        return []
    if saved.version != _VERSION:
        return []
    now = time()
    return [point for point in saved.points if now - MAX_POINTS * INTERVAL <= point.at <= now]
