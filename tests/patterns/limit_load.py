"""A process that uses all it can of some limits, and prints when it was admitted, by the server's clock.

Run as `python -m tests.patterns.limit_load URL SUBJECT SECONDS RULE=LIMIT[/LEAST]...`; it prints, as one
line of JSON, for each rule the milliseconds since 1970 at which it was admitted, and the seconds in which the
server denied it. It ends after this many seconds, but not before it was admitted LEAST times.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from ephemera.keyspace import connect
from ephemera.patterns.rate_limits import BoundRateLimits, Claim
from tests.patterns.limit_fixtures import CATALOGUE, LIMITS

_TASKS = 5
_GRACE = 60.0  # seconds to be admitted often enough


async def main(url: str, subject: str, seconds: float, limits: list[str]) -> None:
    """Check each limit with some tasks on one connection."""
    claims, least = {}, {}
    for each in limits:
        name, _, numbers = each.partition("=")
        limit, _, often = numbers.partition("/")
        claims[name] = LIMITS[name].at(int(limit)).on(subject)
        least[name] = int(often or 0)
    async with connect(url, CATALOGUE) as store:
        ends = time.monotonic() + seconds
        got = await asyncio.gather(
            *(_admissions(store[LIMITS], claim, ends, least[name]) for name, claim in claims.items())
        )
        printed = dict(zip(claims, got, strict=True))
    sys.stdout.write(json.dumps(printed) + "\n")


async def _admissions(
    limiter: BoundRateLimits, claim: Claim, ends: float, least: int
) -> dict[str, list[int]]:
    admitted: list[int] = []
    denied: set[int] = set()

    async def check_repeatedly() -> None:
        while time.monotonic() < (ends if len(admitted) >= least else ends + _GRACE):
            decision = await limiter.check(claim)
            if decision.allowed:
                admitted.append(decision.now)
            elif decision.source == "server":
                denied.add(decision.now // 1000)
            await asyncio.sleep(0.0005 if decision.source == "memory" else 0)

    await asyncio.gather(*(check_repeatedly() for _ in range(_TASKS)))
    return {"admitted": admitted, "denied": sorted(denied)}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]))
