"""A process that wants all it can get of some limits, and tells when it got what, by the server's clock.

Run as `python -m tests.patterns.limit_hammer URL SUBJECT SECONDS RULE=LIMIT...`; it prints, as one line of
JSON, for each rule the milliseconds since 1970 at which it was admitted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING

from ephemera.keyspace import connect
from tests.patterns.limited import CATALOGUE, LIMITS

if TYPE_CHECKING:
    from ephemera.patterns.rate_limits import Claim, Limiter

_TASKS = 5


async def main(url: str, subject: str, seconds: float, limits: list[str]) -> None:
    """Hammer each limit with some tasks on one connection."""
    claims = {}
    for each in limits:
        name, _, limit = each.partition("=")
        claims[name] = LIMITS[name].at(int(limit)).on(subject)
    async with connect(url, CATALOGUE) as store:
        ends = time.monotonic() + seconds
        got = await asyncio.gather(*(_all_of(store[LIMITS], claim, ends) for claim in claims.values()))
        admitted = dict(zip(claims, got, strict=True))
    sys.stdout.write(json.dumps(admitted) + "\n")


async def _all_of(limiter: Limiter, claim: Claim, ends: float) -> list[int]:
    admitted: list[int] = []

    async def hammer() -> None:
        while time.monotonic() < ends:
            decision = await limiter.check(claim)
            if decision.allowed:
                admitted.append(decision.now)
            await asyncio.sleep(0.0005 if decision.source == "memory" else 0)

    await asyncio.gather(*(hammer() for _ in range(_TASKS)))
    return admitted


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]))
