"""A cache without its server: local entries, stale ones, then the loader, a few at a time."""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import timedelta
from typing import Any

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed
from ephemera.keyspace import Catalogue, connect
from ephemera.patterns.cache import Cache, LocalCache
from tests.patterns.profiles import CATALOGUE, COPIED, PLAIN, Profile, Table, user
from tests.wire.conditions import eventually

BRIEF = Catalogue("brief")
NUMBERS = Cache(
    BRIEF,
    "brief:{n}",
    int,
    fresh=timedelta(milliseconds=100),
    stale=timedelta(minutes=5),
    local=LocalCache(max_age=timedelta(milliseconds=100)),
    purpose="Numbers that are stale at once",
)


async def test_a_hung_server_costs_stale_reads_nothing(victim: Valkey) -> None:
    """After SIGSTOP and the first 350 ms, reads with a stale local entry take less than 1 ms, and refresh."""
    loads = 0

    async def load(n: int) -> int:
        nonlocal loads
        loads += 1
        return loads

    async with connect(victim.url, BRIEF) as store:
        numbers = store[NUMBERS]
        for n in range(20):
            await numbers.get_or_load(load, n=n)
            await numbers.get_or_load(load, n=n)
        victim.pause()
        began = time.perf_counter()
        took: list[float] = []
        while time.perf_counter() < began + 1.5:
            for n in range(20):
                asked = time.perf_counter()
                await numbers.get_or_load(load, n=n)
                if asked > began + 0.35:
                    took.append(time.perf_counter() - asked)
            await asyncio.sleep(0.005)
        victim.resume()
        assert statistics.median(took) < 0.001
        assert loads > 40


async def test_with_the_server_down_loads_are_few_at_a_time(victim: Valkey) -> None:
    """Sixty callers of thirty keys: each key is loaded once, three at a time, and is then local."""
    table = Table()
    people = [user() for _ in range(30)]
    table.rows = {who: Profile(who) for who in people}
    async with connect(victim.url, CATALOGUE) as store:
        victim.kill()
        await eventually(lambda: not store.client().up)
        table.gate.clear()
        everybody = (*people, *people)
        calls = [asyncio.create_task(store[COPIED].get_or_load(table.load, user_id=who)) for who in everybody]
        await eventually(lambda: table.at_once == COPIED.loading.max_loads)
        table.gate.set()
        assert await asyncio.gather(*calls) == [Profile(who) for who in (*people, *people)]
        assert (table.loads, table.most_at_once) == (30, COPIED.loading.max_loads)
        for who in people:
            assert await store[COPIED].get_or_load(table.load, user_id=who) == Profile(who)
        assert table.loads == 30
        with pytest.raises(ConnectionFailed):
            await store[COPIED].delete(user_id=people[0])
        table.rows[people[0]] = Profile("new")
        assert await store[COPIED].get_or_load(table.load, user_id=people[0]) == Profile("new")
        assert await store[PLAIN].get_or_load(table.load, user_id=people[1]) == Profile(people[1])
    await asyncio.to_thread(victim.restart)


async def test_what_was_loaded_offline_is_not_trusted_afterwards(victim: Valkey) -> None:
    """Once the server is back, its entry counts, not the local one from the outage."""
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    async with connect(victim.url, CATALOGUE) as store:
        victim.kill()
        await eventually(lambda: not store.client().up)
        assert await store[COPIED].get_or_load(table.load, user_id=who) == Profile("old")
        await asyncio.to_thread(victim.restart)
        await eventually(lambda: store.client().up)
        table.rows[who] = Profile("new")
        assert await store[COPIED].get_or_load(table.load, user_id=who) == Profile("new")


async def test_a_failing_loader_during_an_outage_backs_off(victim: Valkey) -> None:
    """A stale local entry is served, and the loader is called once per backoff, not at each request."""
    loads = 0

    async def load(n: int) -> int:
        nonlocal loads
        loads += 1
        if loads > 1:
            raise LookupError("the source is down, too")
        return loads

    async with connect(victim.url, BRIEF) as store:
        numbers: Any = store[NUMBERS]
        await numbers.get_or_load(load, n=99)
        await numbers.get_or_load(load, n=99)
        victim.kill()
        await eventually(lambda: not store.client().up)
        await asyncio.sleep(0.12)  # until the local entry is stale
        for _ in range(50):
            assert await numbers.get_or_load(load, n=99) == 1
            await asyncio.sleep(0)
        assert loads == 2
    await asyncio.to_thread(victim.restart)
