"""A process that begins a bump and is stuck in its loads, until it is killed.

Run as `python -m tests.patterns.bump_worker URL NAME`.
"""

from __future__ import annotations

import asyncio
import sys

from tests.patterns.league_site import League, Source, connect_league


class Stuck(Source):
    """A source that never answers, and says once that it was asked."""

    async def read(self) -> int:
        """Wait."""
        if not self.loads:
            sys.stdout.write("loading\n")
            sys.stdout.flush()
        self.gate.clear()
        return await super().read()


async def main(url: str, name: str) -> None:
    """Bump until killed."""
    league = League(name)
    async with connect_league(url, league, Stuck(2)) as store:
        await store[league.site].bump(league.table.at(), league.results.at())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
