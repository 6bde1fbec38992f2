"""Local entries of a process that is cut off from Redis: served, or with when_down="load" loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Literal

import pytest

from ephemera import keyspace
from ephemera.embedded import valkey
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Store
from ephemera.patterns.cache import Cache, LocalCache

AGE = timedelta(seconds=2)
CATALOGUE = Catalogue("cut-off")


def _declared(name: str, policy: Literal["serve", "load"]) -> Cache[str]:
    return Cache(
        CATALOGUE,
        f"{name}:{{name}}",
        str,
        fresh=timedelta(hours=1),
        local=LocalCache(max_age=AGE, when_down=policy),
        purpose="What a process keeps that is cut off",
    )


SERVED, LOADED = _declared("served", "serve"), _declared("loaded", "load")


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store with a local entry of each cache, whose server has just died."""

    async def old(name: str) -> str:
        return f"old {name}"

    with valkey() as server:
        async with keyspace.connect(server.url, CATALOGUE) as opened:
            for cache in (SERVED, LOADED):
                assert await opened[cache].get_or_load(old, name="x") == "old x"
                assert await opened[cache].get(name="x") == "old x"  # read back, so that there is a copy
            server.kill()
            yield opened


async def new(name: str) -> str:
    """The current value."""
    return f"new {name}"


async def test_when_down_load_serves_nothing_older_than_max_age(store: Store) -> None:
    """Within `max_age` the local entry is served; after it, "load" returns the new value."""
    await asyncio.sleep(AGE.total_seconds())
    assert await store[SERVED].get_or_load(new, name="x") == "old x"
    assert await store[LOADED].get_or_load(new, name="x") == "new x"


async def test_when_down_load_shares_no_earlier_load(store: Store) -> None:
    """While a load hangs that may have read the old value, a later caller starts another."""
    begun, go_on, loads = asyncio.Event(), asyncio.Event(), []

    async def load(name: str) -> str:
        loads.append(name)
        if len(loads) == 1:
            begun.set()
            await go_on.wait()
            return "read before"
        return "read after"

    first = asyncio.create_task(store[LOADED].get_or_load(load, name="y"))
    await begun.wait()
    assert await store[LOADED].get_or_load(load, name="y") == "read after"
    go_on.set()
    assert await first == "read before"
    assert len(loads) == 2
    # What was read before is not kept: it is not the load that began last.
    assert await store[LOADED].get_or_load(new, name="y") in ("read after", "new y")


def test_an_unknown_policy_is_refused() -> None:
    """An unknown `when_down` is refused, and the error names the valid ones."""
    with pytest.raises(InvalidDeclaration, match="use 'serve' or 'load'"):
        LocalCache(when_down="hope")  # type: ignore[arg-type]
