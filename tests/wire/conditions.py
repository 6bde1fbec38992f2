"""Waiting for a condition, with a limit that a busy machine does not reach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ephemera.errors import ConnectionFailed


async def eventually(condition: Callable[[], object], within: float = 60.0) -> float:
    """Return the seconds it took until the condition held; fail when it took more than `within`."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not condition():
        took = loop.time() - begun
        assert took < within, f"not within {within} s"
        await asyncio.sleep(0.001)
    return loop.time() - begun


async def answered(attempt: Callable[[], Awaitable[object]], within: float = 60.0) -> float:
    """Return the seconds until an attempt succeeded; earlier ones may raise errors of Ephemera."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while True:
        try:
            await attempt()
        except ConnectionFailed:
            took = loop.time() - begun
            assert took < within, f"not within {within} s"
            await asyncio.sleep(0.001)
        else:
            return loop.time() - begun
