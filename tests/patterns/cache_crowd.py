"""A process with twenty callers of one cold entry, which says when it begins to load and what it got.

Run as `python -m tests.patterns.cache_crowd URL USER SECONDS`.
It prints `ready`, waits for a line, and calls.
"""

from __future__ import annotations

import asyncio
import sys

from ephemera.keyspace import connect
from tests.patterns.profiles import CATALOGUE, PLAIN, Profile


async def main(url: str, user: str, seconds: float) -> None:
    """Call together, after a line on stdin."""

    async def load(user_id: str) -> Profile:
        _say("loads")
        await asyncio.sleep(seconds)
        return Profile(user_id)

    async with connect(url, CATALOGUE) as store:
        _say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        got = await asyncio.gather(*(store[PLAIN].get_or_load(load, user_id=user) for _ in range(20)))
        _say(*{profile.name for profile in got})


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
