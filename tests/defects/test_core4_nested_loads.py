"""CORE4: loaders that read through the same cache held all slots, and all failed with LoadTimeout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from ephemera import connect, embedded
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Store, fixed
from ephemera.patterns.cache import Cache, Loading
from ephemera.patterns.entitlements import Entitlements

CATALOGUE = Catalogue("core4")
LOADING = Loading(max_loads=2, hard_timeout=timedelta(seconds=20))
CACHE = Cache(CATALOGUE, "core4:{n}", int, fresh=timedelta(minutes=1), loading=LOADING, purpose="numbers")
LIMITS = Entitlements(
    CATALOGUE, "core4:limit:{n}", int, lifetime=fixed(minutes=1), kind="value", max_concurrent_loads=2
)


class Loader:
    """Loads n from n - 1 and n - 2 through the cache, and counts what works at once."""

    def __init__(self, read: Any) -> None:
        self.read = read
        self.working = self.most = 0

    async def load(self, n: int) -> int:
        """Work, read what this depends on, and work again."""
        await self._work()
        if n % 10 == 0:
            return n
        parts = await asyncio.gather(*(self.read(self.load, n=each) for each in {n - 1, n // 10 * 10}))
        await self._work()
        return int(max(parts)) + 1

    async def _work(self) -> None:
        self.working += 1
        self.most = max(self.most, self.working)
        await asyncio.sleep(0.002)
        self.working -= 1


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store without entries."""
    async with connect(server.url, CATALOGUE) as opened:
        await opened.call("FLUSHDB")
        yield opened


@pytest.mark.parametrize("declared", [CACHE, LIMITS], ids=["cache", "entitlements"])
async def test_core4_loads_that_wait_for_loads_do_not_hold_slots(store: Store, declared: Any) -> None:
    """Chains of loads that are longer than there are slots end, and never more work than there are slots."""
    bound = store[declared]
    loader = Loader(bound.get_or_load if declared is CACHE else bound.get)
    tops = [10 * chain + 5 for chain in range(6)]
    async with asyncio.timeout(60):
        found = await asyncio.gather(*(loader.read(loader.load, n=top) for top in tops))
    assert found == tops
    assert loader.most <= 2


async def test_core4_without_a_server() -> None:
    """The same holds while Redis is down."""
    with embedded.valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            server.stop()
            loader = Loader(store[CACHE].get_or_load)
            assert await asyncio.gather(*(loader.read(loader.load, n=n) for n in (3, 13, 23))) == [3, 13, 23]
            assert loader.most <= 2
