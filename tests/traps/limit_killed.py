"""A process that counts requests until it is killed: `python -m tests.traps.limit_killed URL SUBJECT`."""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from ephemera.keyspace import connect
from tests.patterns.limit_fixtures import CATALOGUE, KINDS, LIMITS


async def main(url: str, subject: str) -> None:
    """Check new subjects as fast as possible, and print when ten of them are counted."""
    async with connect(url, CATALOGUE) as store:
        for number in count():
            await store[LIMITS].check(*(rule.on(f"{subject}-{number}") for rule in KINDS))
            if number == 9:
                print("counting", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
