"""A process that prints the messages of connections: `python -m tests.patterns.fanout_process URL USER N`."""

from __future__ import annotations

import asyncio
import sys

from ephemera import connect
from tests.patterns.fanout_fixtures import BRIEF, CATALOGUE


async def main(url: str, user: str, number: int) -> None:
    """Keep connections open until the process ends."""

    async def hold() -> None:
        async with store[BRIEF].connect(user_id=user) as connection:
            sys.stdout.write("connected\n")
            sys.stdout.flush()
            async for message in connection:
                sys.stdout.write(f"{message}\n")
                sys.stdout.flush()

    async with connect(url, CATALOGUE) as store:
        await asyncio.gather(*(hold() for _ in range(number)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
