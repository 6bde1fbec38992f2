"""What goes on for long ends when who it is for may not have it any more: the asking behind `allowed=`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from ephemera.errors import ConnectionFailed

Allowed: TypeAlias = "Callable[[], Awaitable[bool]]"
"""Whether somebody may still have what they get, such as `RequestSession.lives`."""

EVERY = 10.0  # seconds: so long is somebody told who was signed out or blocked meanwhile
log = logging.getLogger("ephemera.web")


@asynccontextmanager
async def while_allowed(allowed: Allowed | None, leave: Callable[[], None]) -> AsyncIterator[None]:
    """Ask again and again during the block, and `leave` when the answer is no."""
    if allowed is None:
        yield
        return
    asking = asyncio.get_running_loop().create_task(_ask(allowed, leave))
    try:
        yield
    finally:
        asking.cancel()


async def _ask(allowed: Allowed, leave: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(EVERY)
        try:
            if await allowed():
                continue
        except ConnectionFailed:
            continue  # nobody knows; what was allowed goes on, and is asked again
        except Exception:
            log.exception("whether a connection may go on could not be told; it ends")
        leave()
        return
