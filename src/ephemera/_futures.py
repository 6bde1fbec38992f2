"""Futures whose result no caller needs any more."""

from __future__ import annotations

import asyncio
from typing import Any


def discard(future: asyncio.Future[Any]) -> None:
    """Ignore the outcome of a future, so that its exception is not reported as never retrieved."""
    if not future.done():
        future.add_done_callback(discard)
    elif not future.cancelled():
        future.exception()
