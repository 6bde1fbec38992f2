"""Request statistics of this process: counts, latencies and errors."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

_BOUNDS = [0.0001 * 1.1**step for step in range(140)]
"""Seconds: 0.1 ms to about a minute in steps of 10 %, which is the precision of a quantile."""


class RequestFigures(msgspec.Struct, kw_only=True, frozen=True):
    """The statistics so far; times in milliseconds."""

    requests: int
    errors: int
    """Responses with 5xx."""
    not_modified: int
    refused: int
    """Responses with 429."""
    p50: float
    p95: float
    p99: float

    @property
    def error_rate(self) -> float:
        """The share of responses with 5xx."""
        return self.errors / self.requests if self.requests else 0.0


class RequestMeter:
    """Counts requests by latency."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._requests = self._errors = self._not_modified = self._refused = 0

    @property
    def requests(self) -> int:
        """The number of requests so far."""
        return self._requests

    def count(self, status: int, seconds: float) -> None:
        """Count one response."""
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        self._requests += 1
        if status == 304:
            self._not_modified += 1
        elif status == 429:
            self._refused += 1
        elif status >= 500:
            self._errors += 1

    def read(self) -> RequestFigures:
        """The statistics so far."""
        return RequestFigures(
            requests=self._requests,
            errors=self._errors,
            not_modified=self._not_modified,
            refused=self._refused,
            p50=self._quantile(0.5),
            p95=self._quantile(0.95),
            p99=self._quantile(0.99),
        )

    def _quantile(self, share: float) -> float:
        rank, seen = share * self._requests, 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                return round(_BOUNDS[min(bucket, len(_BOUNDS) - 1)] * 1000, 3)
        return 0.0
