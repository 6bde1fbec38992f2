"""Finding the keys of a keyspace: bounded searches that continue where the last one stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from ephemera.embedded import Cluster, Valkey
from ephemera.keyspace import Catalogue, Store, connect, fixed
from ephemera.operations.inspect import KeyFinder
from ephemera.wire import open_client

CATALOGUE = Catalogue("test-finding")
NOTE = CATALOGUE.value("finding-note:{name}", str, lifetime=fixed(minutes=5), purpose="Something to find")
ONLY = CATALOGUE.value("finding-only", str, lifetime=fixed(minutes=5), purpose="The only one of its kind")


@pytest.fixture(params=["server", "cluster"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A server, and a cluster, without notes."""
    where: Valkey | Cluster = request.getfixturevalue(request.param)
    async with connect(where.url, CATALOGUE) as opened:
        await opened[NOTE].delete_many([{"name": f"n{number}"} for number in range(3000)])
        yield opened


async def test_searches_continue_until_every_key_is_known(store: Store) -> None:
    """Each search reads one page, and after a full pass all keys are known, on every node."""
    names = [f"n{number}" for number in range(3000)]
    await store[NOTE].put_many([({"name": name}, "x") for name in names])
    finder = KeyFinder(store.client(), NOTE, limit=None)
    found: list[str] = []
    looks = 0
    while not finder.complete:
        found = await finder.search(pages=1)
        looks += 1
        assert looks < 1000
    assert looks > 1
    assert {NOTE.key(name=name) for name in names} <= set(found)


async def test_deleted_keys_are_dropped_after_a_pass(store: Store) -> None:
    """A key that a full pass does not see again is dropped."""
    name = f"n-{uuid4().hex}"
    await store[NOTE].put("x", name=name)
    finder = KeyFinder(store.client(), NOTE)
    assert NOTE.key(name=name) in await finder.find_all()
    await store[NOTE].delete(name=name)
    await finder.search()
    assert NOTE.key(name=name) not in await finder.search()


async def test_results_are_limited(store: Store) -> None:
    """A finder with a limit of ten returns ten keys, and says that there are more."""
    await store[NOTE].put_many([({"name": f"n{number}"}, "x") for number in range(500)])
    finder = KeyFinder(store.client(), NOTE, limit=10)
    assert len(await finder.find_all()) == 10
    assert finder.truncated


async def test_a_keyspace_without_fields_needs_no_search(store: Store) -> None:
    """It is one key, known without asking a server."""
    async with open_client("redis://127.0.0.1:1", required=False) as nowhere:
        assert await KeyFinder(nowhere, ONLY).search() == [ONLY.key()]
