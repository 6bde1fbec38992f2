"""A process that wants all it can get of some limits, and tells when it got what, by the server's clock.

Run as `python -m tests.patterns.limit_hammer URL SUBJECT SECONDS RULE=LIMIT[/LEAST]...`; it prints, as one
line of JSON, for each rule the milliseconds since 1970 at which it was admitted, and the seconds in which the
server denied it. It ends after so many seconds, and where it is to be admitted so often at least, not before.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from ephemera.keyspace import connect
from ephemera.patterns.rate_limits import Claim, Limiter
from tests.patterns.limited import CATALOGUE, LIMITS

_TASKS = 5
_PATIENCE = 60.0  # seconds to be admitted often enough


async def main(url: str, subject: str, seconds: float, limits: list[str]) -> None:
    """Hammer each limit with some tasks on one connection."""
    claims, least = {}, {}
    for each in limits:
        name, _, numbers = each.partition("=")
        limit, _, often = numbers.partition("/")
        claims[name] = LIMITS[name].at(int(limit)).on(subject)
        least[name] = int(often or 0)
    async with connect(url, CATALOGUE) as store:
        ends = time.monotonic() + seconds
        got = await asyncio.gather(
            *(_all_of(store[LIMITS], claim, ends, least[name]) for name, claim in claims.items())
        )
        told = dict(zip(claims, got, strict=True))
    sys.stdout.write(json.dumps(told) + "\n")


async def _all_of(limiter: Limiter, claim: Claim, ends: float, least: int) -> dict[str, list[int]]:
    admitted: list[int] = []
    denied: set[int] = set()

    async def hammer() -> None:
        while time.monotonic() < (ends if len(admitted) >= least else ends + _PATIENCE):
            decision = await limiter.check(claim)
            if decision.allowed:
                admitted.append(decision.now)
            elif decision.source == "server":
                denied.add(decision.now // 1000)
            await asyncio.sleep(0.0005 if decision.source == "memory" else 0)

    await asyncio.gather(*(hammer() for _ in range(_TASKS)))
    return {"admitted": admitted, "denied": sorted(denied)}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]))
