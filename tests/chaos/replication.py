"""How far replicas are behind: a fail-over loses the rest."""

from __future__ import annotations

import asyncio
import re

from ephemera.embedded import Valkey


async def caught_up(master: Valkey, within: float = 60.0) -> None:
    """Wait until all replicas of a master, at least one, have what it has now."""
    written = int(_numbers(master, r"master_repl_offset:(\d+)")[0])
    async with asyncio.timeout(within):
        while not (offsets := _numbers(master, r"state=online,offset=(\d+)")) or min(offsets) < written:
            await asyncio.sleep(0.05)


def _numbers(master: Valkey, pattern: str) -> list[int]:
    info = master.ask("INFO", "replication")
    text = info.decode() if isinstance(info, bytes) else str(info)
    return [int(number) for number in re.findall(pattern, text)]
