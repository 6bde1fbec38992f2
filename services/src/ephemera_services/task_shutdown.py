"""Ending tasks that work on servers which may hang.

    await end_tasks([planning, looking])

To cancel once is not enough. psycopg, interrupted, waits ten seconds more for a server that hangs; SQLAlchemy
may turn the interruption into an error of its own, after which a loop that survives errors goes on; and a
cancellation that meets the very answer a task waits for may be lost. Giving a connection back SQLAlchemy does
in a task of its own, to its end, whoever is cancelled: with a server that hangs it has none, so after a while
such tasks are cancelled as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_CANCEL_AGAIN = 0.5  # seconds
_PATIENCE = 3  # times, before connections are not given back any more


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended."""
    left, times = set(tasks), 0
    while left:
        times += 1
        for task in left if times <= _PATIENCE else left | _giving_back():
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN)


def _giving_back() -> set[asyncio.Task[Any]]:
    """The tasks that SQLAlchemy has begun."""
    return {task for task in asyncio.all_tasks() if "/sqlalchemy/" in _file(task)}


def _file(task: asyncio.Task[Any]) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return "" if code is None else str(code.co_filename)
