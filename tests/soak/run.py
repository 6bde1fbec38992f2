"""The phases of a soak: rest, traffic, and rest until everything has come back or a minute is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ephemera_services.demo import Screen, ServerUrls
from ephemera_services.demo.run import start_demo
from ephemera_services.demo.tour import RunningDemo
from ephemera_services.demo.traffic import generate_traffic
from tests.soak.sampler import sample
from tests.soak.verdict import Finding, Phase, Reading, judge

REST_BEFORE, REST_AFTER = 8.0, 75.0
"""Seconds without traffic: before it, and at most after it."""


@dataclass
class Soak:
    """One soak; what it saw is in `readings` and `requests`."""

    seconds: float
    interval: float = 2.0
    log: Callable[[str], None] = print
    readings: list[Reading] = field(default_factory=list)
    requests: int = 0
    failed: int = 0
    _began: float = field(default_factory=time.monotonic)

    async def run(self) -> list[Finding]:
        """Run it; what became of each resource."""
        async with start_demo(ServerUrls(None, None, None, None, None), Screen()) as demo:
            await self._phase(demo, "before", REST_BEFORE)
            async with generate_traffic(demo.traffic):
                for phase, share in (("warm-up", 0.25), ("plateau", 0.25), ("traffic", 0.5)):
                    await self._phase(demo, phase, self.seconds * share)  # type: ignore[arg-type]
            self.requests, self.failed = demo.traffic.counts["requests"], demo.traffic.counts["failed"]
            deadline = time.monotonic() + REST_AFTER
            while True:
                await self._phase(demo, "after", self.interval)
                findings = judge(self.readings)
                if all(finding.holds for finding in findings) or time.monotonic() > deadline:
                    return findings

    async def _phase(self, demo: RunningDemo, phase: Phase, seconds: float) -> None:
        """Sample for so long, at least once."""
        ends = time.monotonic() + seconds
        while True:
            await asyncio.sleep(min(self.interval, seconds))
            latest = await asyncio.to_thread(sample, demo, phase)
            at = time.monotonic() - self._began
            self.readings += (each._replace(at=at) for each in latest)
            self.log(
                f"{phase:<8} {sum(each.memory for each in latest):6.0f} MB,"
                f" {sum(each.descriptors for each in latest)} descriptors,"
                f" {sum(each.sql for each in latest)} SQL connections,"
                f" {sum(each.redis for each in latest)} Redis clients,"
                f" {demo.traffic.counts['requests']} requests"
            )
            if time.monotonic() >= ends:
                return
