"""What replicas have heard of: a fail-over loses the rest."""

from __future__ import annotations

import asyncio
import re

from ephemera.embedded import Valkey


async def caught_up(master: Valkey, within: float = 60.0) -> None:
    """Wait until all replicas of a master, at least one, have what it has now."""
    written = int(_numbers(master, r"master_repl_offset:(\d+)")[0])
    async with asyncio.timeout(within):
        while not (heard := _numbers(master, r"state=online,offset=(\d+)")) or min(heard) < written:
            await asyncio.sleep(0.05)


def _numbers(master: Valkey, pattern: str) -> list[int]:
    told = master.ask("INFO", "replication")
    text = told.decode() if isinstance(told, bytes) else str(told)
    return [int(number) for number in re.findall(pattern, text)]
