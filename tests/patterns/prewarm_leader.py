"""A process that prewarms a league, loads its first page and is stuck in the second, until it is killed.

Run as `python -m tests.patterns.prewarm_leader URL NAME`.
"""

from __future__ import annotations

import asyncio
import sys

from tests.patterns.league_site import League, Source, connect_league


class Stuck(Source):
    """A source whose second load never ends."""

    async def read(self) -> int:
        """The points, the first time."""
        if self.loads == 1:
            sys.stdout.write("loaded one, stuck in the next\n")
            sys.stdout.flush()
            self.gate.clear()
        return await super().read()


async def main(url: str, name: str) -> None:
    """Prewarm until killed."""
    league = League(name, prewarm_rate=200)
    async with connect_league(url, league, Stuck(1)) as store:
        await store[league.site].prewarm()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
