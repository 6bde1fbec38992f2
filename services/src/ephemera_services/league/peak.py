"""At peak the table is renewed more often: in match windows every 15 s, or 10 s at twice the peak rate.

The rate is that of all requests to this process in the last ten seconds, sampled once per second, so that a
request costs nothing. It concerns the tables that this process loads from then on; others expire as stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from datetime import timedelta
from time import monotonic

import msgspec

from ephemera import Store
from ephemera.patterns.http_cache import Freshness
from ephemera_services.league.figures import RequestMeter
from ephemera_services.league.keys import TABLE

logger = logging.getLogger(__name__)

_WINDOW = 10  # seconds
_LONGEST, _SHORTEST = 15, 10  # seconds
_OVER = 0.8  # of the peak rate, so that a rate around it does not switch to and fro
_STALE = timedelta(minutes=5)


class PeakFigures(msgspec.Struct, frozen=True):
    """The rate of requests, and whether it is a peak."""

    requests_per_second: float
    table_seconds: int | None
    """How long tables are fresh in match windows because of it; None if it is not a peak."""


class PeakAdaptation:
    """Adapts the freshness of one store's table to the rate of requests.

    Args:
        store: The store.
        meter: Counts the requests.
        peak: How many per second are a peak.

    """

    def __init__(self, store: Store, meter: RequestMeter, peak: int) -> None:
        self._table = store[TABLE]
        self._meter = meter
        self._peak = peak
        self._samples: deque[tuple[float, int]] = deque(maxlen=_WINDOW + 1)
        self.figures = PeakFigures(0.0, None)
        """As of the last second."""

    async def run(self) -> None:
        """Adapt it every second, until cancelled."""
        while True:
            self.adapt(monotonic())
            await asyncio.sleep(1)

    def adapt(self, now: float) -> None:
        """Take a sample, and change the freshness if the rate has changed enough."""
        self._samples.append((now, self._meter.requests))
        (since, before), (until, after) = self._samples[0], self._samples[-1]
        rate = (after - before) / max(1.0, until - since)
        was, seconds = self.figures.table_seconds, self._seconds(rate)
        self.figures = PeakFigures(round(rate, 1), seconds)
        if seconds == was:
            return
        fresh = None if seconds is None else Freshness(fresh=timedelta(seconds=seconds), stale=_STALE)
        self._table.set_in_window(fresh)
        if was is None:
            logger.info("a peak has begun", extra={"rate": self.figures.requests_per_second})
        elif seconds is None:
            logger.info("the peak is over", extra={"rate": self.figures.requests_per_second})

    def _seconds(self, rate: float) -> int | None:
        if rate < self._peak:
            return _LONGEST if self.figures.table_seconds and rate >= self._peak * _OVER else None
        above = min(1.0, rate / self._peak - 1)
        return round(_LONGEST - above * (_LONGEST - _SHORTEST))
