"""`ephemera locks list` on real servers."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from ephemera import Store, connect
from tests.cli.commands import ephemera
from tests.patterns.lock_fixtures import ALONE, CATALOGUE, LOCKS, PAIRS, POOL, SHELF, queued

NAME = "tests.patterns.lock_fixtures:CATALOGUE"


@pytest.fixture(params=["server", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """One server, and then a cluster."""
    return str(request.getfixturevalue(request.param).url)


async def _shown(url: str, *words: str) -> str:
    """Run the command in a thread, because it runs its own event loop."""
    outcome = await asyncio.to_thread(ephemera, "locks", "list", NAME, "--url", url, *words)
    assert outcome.code == 0, outcome.err
    return outcome.out


async def _wait_for(store: Store, name: str) -> None:
    async with store[LOCKS].hold(name=name):
        pass


async def test_held_locks_are_listed_with_holder_fence_and_waiters(url: str, key: str) -> None:
    """Every held lock of the catalogue is listed, and no released one."""
    async with connect(url, CATALOGUE) as store:
        async with store[LOCKS].hold(name=f"{key}-given-up"):
            pass
        async with (
            store[LOCKS].hold(name=key) as held,
            store[ALONE].hold() as alone,
            store[PAIRS].hold(org="o", doc=key) as pair,
            store[POOL].hold(name=key) as permit,
            store[SHELF].read(name=key) as read,
        ):
            waiting = asyncio.create_task(_wait_for(store, key))
            await queued(store, LOCKS, 1, name=key)
            message: list[dict[str, Any]] = json.loads(await _shown(url, "--json"))
            table = await _shown(url)
        await waiting
    by_key = {row["key"]: row for row in message}
    assert {held.key, alone.key, pair.key} <= by_key.keys()
    for shared, mode in ((permit, "permit 0"), (read, "read")):
        row = by_key[shared.key]
        assert (row["mode"], row["fence"]) == (mode, shared.fence)
        assert 0 < row["lease_left"] <= 30
    row = by_key[held.key]
    assert (row["pattern"], row["fence"], row["waiters"]) == ("lock:{name}", held.fence, 1)
    assert row["holder"].endswith(f"/{os.getpid()}")
    assert 0 < row["lease_left"] <= 30
    assert not any("given-up" in name for name in by_key)
    assert str(held.fence) in table


async def test_without_held_locks_it_says_so(url: str) -> None:
    """Without locks the output is a sentence, or an empty list as JSON."""
    async with connect(url, CATALOGUE) as store:
        for key in [row["key"] for row in json.loads(await _shown(url, "--json"))]:
            await store.call("UNLINK", key)
    assert json.loads(await _shown(url, "--json")) == []
    assert await _shown(url) == "No locks are held.\n"
