"""What identity keeps in Redis, by category, compared with the estimates of its design.

Keys are counted by SCAN in small steps, and a sample of each keyspace is inspected, both on separate
connections and within a second, so no other request waits. On a server too large for that the figures are
extrapolated from the part that was seen, and say so. A report is reused for ten seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ephemera.operations.survey import SampledKey, SurveyOptions, open_servers, survey
from ephemera_services.identity.keys import ATTEMPTS, REFRESH_TOKEN_LIFETIME, catalogue

_PLAN = SurveyOptions(sample=100, budget=1.0, contents=False)
_REPORT_LIFETIME = 10.0  # seconds
_MB, _HOUR = 1_000_000, 3600.0
_LONGEST_REVOCATION = REFRESH_TOKEN_LIFETIME.total_seconds() + 2 * _HOUR
"""The design says a day on average, and that a refresh token is listed for its 7 days. Every sign-out lists
one, so the second is the bound; marks of users and families outlive their tokens by an hour."""


class Estimate(NamedTuple):
    """The expected range of a category."""

    keys: tuple[float, float]
    bytes: tuple[float, float]
    max_ttl: float | None  # seconds; on average keys have less left


ESTIMATES = {
    "sessions": Estimate((1_000, 10_000), (5 * _MB, 50 * _MB), 4 * _HOUR),
    "blacklist": Estimate((100, 1_000), (0.1 * _MB, 1 * _MB), _LONGEST_REVOCATION),
    "cache": Estimate((1_000, 50_000), (10 * _MB, 100 * _MB), 300),
    "rate": Estimate((100, 10_000), (0.5 * _MB, 5 * _MB), _HOUR + 60),  # sliding windows: a minute more
    "total": Estimate((2_200, 71_000), (15 * _MB, 156 * _MB), None),
}
"""A typical production server, according to the service's design."""

_CATEGORIES = {
    "sessions": ("session:", "session_index:"),
    "blacklist": ("blacklist:", "revoked:"),
    "cache": ("cache:", "loading:"),
    "rate": ("rate", "sliding_rate"),  # including denials
}
_ONLY_IN_TOTAL = frozenset((ATTEMPTS.addresses.pattern,))
"""Keys that the design does not have; in a category they would be judged against the estimate of others."""


_OTHER = "other"


class _Figures(NamedTuple):
    keys: float = 0.0
    bytes: float = 0.0
    ttls: tuple[tuple[float, float], ...] = ()  # mean in seconds, and the number of keys it represents

    def __add__(self, other: Any) -> _Figures:
        return _Figures(self.keys + other.keys, self.bytes + other.bytes, self.ttls + other.ttls)

    @property
    def mean_ttl(self) -> float | None:
        weight = sum(keys for _, keys in self.ttls)
        return sum(mean * keys for mean, keys in self.ttls) / weight if weight else None


class RedisStatistics:
    """Inspects the servers, at most once in ten seconds."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._lock = asyncio.Lock()
        self._latest: dict[str, Any] = {}
        self._at = -_REPORT_LIFETIME

    async def report(self) -> dict[str, Any]:
        """The figures; `ConnectionFailed` if a server is unavailable."""
        async with self._lock:
            if time.monotonic() - self._at > _REPORT_LIFETIME:
                self._latest = await self._inspect()
                self._at = time.monotonic()
            return self._latest

    async def _inspect(self) -> dict[str, Any]:
        began = time.monotonic()
        seen = {category: _Figures() for category in (*_CATEGORIES, _OTHER)}
        complete, sampled = True, 0
        for url in self._urls:
            async with open_servers(url) as nodes:
                found = await survey(nodes, [each for each in catalogue if each.kind != "channel"], _PLAN)
            complete &= found.complete
            scale = 1.0 if found.complete else max(1.0, found.keys / max(1, found.names))
            for sample in found.samples:
                sampled += len(sample.keys)
                if sample.keyspace is not None:
                    seen[_category(sample.keyspace.pattern)] += _figures_of(sample.count * scale, sample.keys)
        seen["total"] = sum(seen.values(), _Figures())
        del seen[_OTHER]
        return {
            "complete": complete,
            "sampled": sampled,
            "seconds": time.monotonic() - began,
            "categories": [_compare(category, figures) for category, figures in seen.items()],
        }


def _category(pattern: str) -> str:
    if pattern in _ONLY_IN_TOTAL:
        return _OTHER
    return next(name for name, starts in _CATEGORIES.items() if pattern.startswith(starts))


def _figures_of(keys: float, probes: Iterable[SampledKey]) -> _Figures:
    sizes = [probe.size for probe in probes if probe.size is not None]
    ttls = [probe.ttl / 1000 for probe in probes if probe.ttl >= 0]
    return _Figures(
        keys,
        keys * sum(sizes) / len(sizes) if sizes else 0.0,
        ((sum(ttls) / len(ttls), keys),) if ttls else (),
    )


def _compare(category: str, seen: _Figures) -> dict[str, Any]:
    estimate = ESTIMATES[category]
    return {
        "category": category,
        "keys": _compared(round(seen.keys), estimate.keys),
        "bytes": _compared(round(seen.bytes), estimate.bytes),
        "mean_ttl_seconds": estimate.max_ttl and _compared(seen.mean_ttl, (0, estimate.max_ttl)),
    }


def _compared(value: float | None, bounds: tuple[float, float]) -> dict[str, Any]:
    low, high = bounds
    if value is None:
        verdict = "unknown"
    else:
        verdict = "below" if value < low else "above" if value > high else "within"
    return {"value": value, "low": low, "high": high, "verdict": verdict}
