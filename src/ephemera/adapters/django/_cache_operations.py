"""The operations of the cache on a client: coroutines that await nothing but replies.

So each runs on an event loop and in a thread without one. Commands that are issued before the first reply is
awaited share one write. On a cluster each has one key.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from ephemera._futures import discard
from ephemera.adapters.django._cache_server import MISSING, Serializer
from ephemera.errors import ServerError
from ephemera.wire import Arg, Script

_INCREMENT = Script.load("ephemera.adapters.django", "increment")
_REPLACE = Script.load("ephemera.adapters.django", "replace")

Entry = tuple[str, bytes | int, float | None]
"""A key, a stored value, and the seconds that it lives; None: it does not expire, 0: it is not stored."""


async def command(client: Any, *args: Arg) -> Any:
    """Send a command."""
    return await client.call(*args)


async def store(client: Any, key: str, stored: bytes | int, seconds: float | None) -> None:
    """Store a value with its lifetime."""
    await client.call(*_write(key, stored, seconds))


async def add(client: Any, key: str, stored: bytes | int, seconds: float | None) -> bool:
    """Store a value if there is none."""
    if seconds == 0:
        return not await client.call("EXISTS", key)
    return await client.call(*_write(key, stored, seconds), "NX") is not None


async def touch(client: Any, key: str, seconds: float | None) -> Any:
    """Give a value a new lifetime; a value that does not expire may stay so."""
    if seconds is None:
        persisted, exists = client.call("PERSIST", key), client.call("EXISTS", key)
        return (await replies_of([persisted, exists]))[1]
    return await client.call("PEXPIRE", key, _milliseconds(seconds))


async def read_all(client: Any, keys: dict[str, Any]) -> dict[Any, bytes]:
    """The stored values, by what the keys are called."""
    if not keys:
        return {}
    if client.is_cluster:
        stored = await replies_of([client.call("GET", key) for key in keys])
    else:
        stored = await client.call("MGET", *keys)
    return {name: each for name, each in zip(keys.values(), stored, strict=True) if each is not None}


async def store_all(client: Any, entries: list[Entry]) -> None:
    """Store several values."""
    await replies_of([client.call(*_write(*entry)) for entry in entries])


async def delete_all(client: Any, keys: dict[str, Any]) -> int:
    """Delete several values, and return how many there were."""
    return sum(await replies_of([client.call("UNLINK", key) for key in keys]))


async def increment(client: Any, serializer: Serializer, key: str, delta: int) -> int:
    """Add to a number; one that the server cannot count with is replaced unless it has changed since."""
    while True:
        try:
            added = await client.run(_INCREMENT, (key,), (delta,))
        except ServerError:  # not an integer, or not of 64 bits
            stored = await client.call("GET", key)
            added = None if stored is None else _sum(serializer, key, stored, delta)
            if added is not None:
                written = serializer.dumps(added)
                if not await client.run(_REPLACE, (key,), (stored, written)):
                    continue
        if added is None:
            raise ValueError(f"Key '{key}' not found")
        return int(added)


async def replies_of(sent: list[Any]) -> list[Any]:
    """Await replies to commands that were issued together; if one fails, none is left unnoticed."""
    try:
        return [await reply for reply in sent]
    except BaseException:
        for reply in sent:
            if isinstance(reply, asyncio.Future):
                discard(reply)
        raise


def lifetime_left(reply: int) -> int | None:
    """The reply of PTTL: None for a value that does not expire, 0 for none."""
    return None if reply == -1 else max(0, reply)


def _write(key: str, stored: bytes | int, seconds: float | None) -> tuple[Arg, ...]:
    if seconds is None:
        return "SET", key, stored
    return ("SET", key, stored, "PX", _milliseconds(seconds)) if seconds > 0 else ("UNLINK", key)


def _milliseconds(seconds: float) -> int:
    """At least one, unless it is 0: the server refuses a lifetime of none."""
    return max(1, int(seconds * 1000)) if seconds > 0 else 0


def _sum(serializer: Serializer, key: str, stored: bytes, delta: int) -> Any:
    value = serializer.loads(stored)
    if value is MISSING or not isinstance(value, (int, float)):
        raise _not_a_number(f"the value of {key!r} is not a number, so nothing can be added to it")
    return value + delta


def _not_a_number(message: str) -> TypeError:
    """The error of Django's other backends; where redis-py is imported, its Redis backend's error as well."""
    redis = sys.modules.get("redis.exceptions")
    if redis is None:
        return TypeError(message)
    error: type[TypeError] = type("NotANumber", (TypeError, redis.ResponseError), {})
    return error(message)
