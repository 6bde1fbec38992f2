"""Synthetic traffic for the simulation: insights and signs of life, hour by hour, the same for the same seed.

Channels are unequal (the k-th busiest has a share of 1/k), users come on some days and in some hours, and
both follow the day: quiet at night, busiest in the evening. Nothing here reads a clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import msgspec

HOUR = 3_600_000


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """How much traffic there is, and what works on it."""

    days: int = 365
    users: int = 100
    channels: int = 50
    subscriptions: int = 10  # of each user
    insights_per_day: float = 300.0  # in all channels together
    active_days: float = 0.6  # the share of days on which a user comes
    tick_every: float = 60.0  # seconds
    workers: int = 4
    run_seconds: float = 20.0  # that a run takes
    shares: dict[str, float] = {}  # of users by plan; equal when there are none
    seed: int = 1


class Traffic:
    """The events of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self._chance = random.Random(scenario.seed)
        weights = [1 / (rank + 1) for rank in range(scenario.channels)]
        self._scenario = scenario
        self._rates = [scenario.insights_per_day * weight / sum(weights) / 24 for weight in weights]
        self.subscriptions = [
            self._chance.sample(range(scenario.channels), min(scenario.subscriptions, scenario.channels))
            for _ in range(scenario.users)
        ]

    def hours(self, start: int) -> Iterator[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]]:
        """For every hour its end, then its insights (when, channel) and touches (when, user), in order."""
        today: list[int] = []
        for hour in range(self._scenario.days * 24):
            begin = start + hour * HOUR
            if hour % 24 == 0:
                share = self._scenario.active_days
                today = [u for u in range(self._scenario.users) if self._chance.random() < share]
            busy = 1 - 0.9 * math.cos((hour % 24 - 7) / 24 * 2 * math.pi)
            insights = [
                (begin + self._chance.randrange(HOUR), channel)
                for channel, rate in enumerate(self._rates)
                for _ in range(self._poisson(rate * busy))
            ]
            touches = [
                (begin + self._chance.randrange(HOUR), user)
                for user in today
                if self._chance.random() < busy / 8
            ]
            yield begin + HOUR, sorted(insights), sorted(touches)

    def _poisson(self, mean: float) -> int:
        """How often something that happens `mean` times on average happens."""
        if mean > 50:
            return max(0, round(self._chance.gauss(mean, math.sqrt(mean))))
        count, product, end = 0, self._chance.random(), math.exp(-mean)
        while product > end:
            count += 1
            product *= self._chance.random()
        return count
