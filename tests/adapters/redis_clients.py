"""Clients of redis-py's and of ours, side by side, and what the server knows of their connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio as stock
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ephemera.adapters.redis_py import Redis
from ephemera.embedded import Valkey

NEVER = Retry(NoBackoff(), 0)
"""The retry policy that repeats nothing."""


@asynccontextmanager
async def ours(server: Valkey, **options: Any) -> AsyncIterator[Any]:
    """A client of ours."""
    async with Redis.from_url(server.url, **options) as client:
        yield client


@asynccontextmanager
async def both(server: Valkey, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """A client of redis-py's and one of ours, with the same options."""
    async with stock.Redis.from_url(server.url, **options) as theirs, ours(server, **options) as client:
        yield theirs, client


def connections(server: Valkey, name: str) -> int:
    """How many connections with this client name the server has."""
    return str(server.ask("CLIENT", "LIST")).count(f" name={name} ")


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait for a condition of the server's."""
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)
