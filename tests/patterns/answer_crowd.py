"""A process with twenty callers of one cold prompt, which says when it asks the model and what it got.

Run as `python -m tests.patterns.answer_crowd URL ORGANIZATION SECONDS`.
It prints `ready`, waits for a line, and calls.
"""

from __future__ import annotations

import asyncio
import sys

from ephemera.keyspace import connect
from tests.patterns.outline_cache import CATALOGUE, OUTLINES, Outline, scope


async def main(url: str, organization: str, seconds: float) -> None:
    """Call together, after a line on stdin."""

    async def ask(prompt: str) -> Outline:
        _say("asks")
        await asyncio.sleep(seconds)
        return Outline(organization)

    where = scope(organization=organization)
    async with connect(url, CATALOGUE) as store:
        outlines = store[OUTLINES]
        await outlines.find("another prompt", where)
        _say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        got = await asyncio.gather(*(outlines.get_or_ask("a pitch", where, ask) for _ in range(20)))
        _say(*{answer.value.title for answer in got})


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
