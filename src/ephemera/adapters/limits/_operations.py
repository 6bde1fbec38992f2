"""What storages do on a client: coroutines that await nothing but replies.

So each is written once, and runs on an event loop and in a thread without one. Keys and values are those of
the Redis storage of limits, so that both may count for one limit.
"""

from __future__ import annotations

from time import time
from typing import Any

from ephemera.errors import EphemeraError
from ephemera.wire import Script

_PACKAGE = "ephemera.adapters.limits"
_ROLL = (f"{_PACKAGE}:roll",)
_INCREMENT = Script.load(_PACKAGE, "increment")
_ACQUIRE_MOVING = Script.load(_PACKAGE, "acquire_moving")
_MOVING_WINDOW = Script.load(_PACKAGE, "moving_window")
_ACQUIRE_SLIDING = Script.load(_PACKAGE, "acquire_sliding", shared=_ROLL)
_SLIDING_WINDOW = Script.load(_PACKAGE, "sliding_window", shared=_ROLL)
_FEW = 1000  # entries that are added in well under a millisecond


async def increment(client: Any, key: str, expiry: int, amount: int) -> int:
    """Count in a fixed window."""
    return int(await client.run(_INCREMENT, [key], [expiry, amount]))


async def count(client: Any, key: str) -> int:
    """The count of a fixed window."""
    return int(await client.call("GET", key) or 0)


async def expires_at(client: Any, key: str) -> float:
    """When a fixed window ends; now, if there is none."""
    return max(0, int(await client.call("PTTL", key))) / 1000 + time()


async def clear(client: Any, *keys: str) -> None:
    """Delete keys of one slot."""
    await client.call("UNLINK", *keys)


async def acquire_moving(client: Any, key: str, limit: int, expiry: int, amount: int) -> bool:
    """Take entries of a moving window."""
    args = (limit, expiry, amount)
    if amount <= _FEW:
        return bool(await client.run(_ACQUIRE_MOVING, [key], args))
    # A command of unknown cost, as the wire sees it: it delays no other call and has more time.
    return bool(await client.call("EVALSHA", _ACQUIRE_MOVING.sha, 1, key, *args))


async def moving_window(client: Any, key: str, limit: int, expiry: int) -> tuple[float, int]:
    """When the oldest entry of a moving window was taken, by this machine's clock, and how many there are."""
    entries, age = await client.run(_MOVING_WINDOW, [key], [limit, expiry])
    return time() - age / 1_000_000, entries


async def acquire_sliding(
    client: Any, previous: str, current: str, limit: int, expiry: int, amount: int
) -> bool:
    """Count in a sliding window."""
    return bool(await client.run(_ACQUIRE_SLIDING, [previous, current], [limit, expiry * 1000, amount]))


async def sliding_window(
    client: Any, previous: str, current: str, expiry: int
) -> tuple[int, float, int, float]:
    """The counts of the previous and the current window, each with the seconds that it is kept."""
    before, fades, now, left = await client.run(_SLIDING_WINDOW, [previous, current], [expiry * 1000])
    return before, fades / 1000, now, left / 1000


async def is_up(client: Any) -> bool:
    """Whether the server answers."""
    try:
        return bool(await client.call("PING"))
    except EphemeraError:
        return False
