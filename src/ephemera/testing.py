"""Fixtures for your own test suite: an empty store on a real server that starts by itself.

Installing `ephemera-data[embedded]` is enough; pytest finds the plugin by itself. One embedded Valkey serves
the whole session and is emptied before each test that uses it.

    async def test_greeting(ephemera_store):            # with pytest-asyncio or anyio
        await ephemera_store.call("SET", "greeting", "hello", "EX", 60)

    def test_greeting_sync(ephemera_sync_store):        # no event loop needed
        ephemera_sync_store.call("SET", "greeting", "hello", "EX", 60)

For typed accessors, override the fixture `ephemera_catalogues` to return your catalogues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest

from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Store
from ephemera.sync import SyncStore


def pytest_configure(config: pytest.Config) -> None:
    """Register the async fixture with the plugin of the suite: pytest-asyncio or anyio."""
    fixture: Callable[..., Any] = pytest.fixture
    if config.pluginmanager.hasplugin("asyncio"):
        import pytest_asyncio

        fixture = pytest_asyncio.fixture
    plugin = ModuleType("ephemera_async_fixtures")
    vars(plugin)["ephemera_store"] = fixture(_ephemera_store, name="ephemera_store")
    config.pluginmanager.register(plugin)


@pytest.fixture(scope="session")
def ephemera_server() -> Iterator[Valkey]:
    """One embedded Valkey for the whole test session; it stops with the session, whatever happens."""
    from ephemera.embedded import valkey

    with valkey() as server:
        yield server


@pytest.fixture
def ephemera_catalogues() -> Sequence[Catalogue]:
    """The catalogues your tests use; override it in your conftest.py."""
    return ()


@pytest.fixture
def ephemera_sync_store(
    ephemera_server: Valkey, ephemera_catalogues: Sequence[Catalogue]
) -> Iterator[SyncStore]:
    """A synchronous store on the embedded server, which is empty at first."""
    from ephemera import sync

    with sync.connect(ephemera_server.url, *ephemera_catalogues) as store:
        store.call("FLUSHALL")
        yield store


async def _ephemera_store(
    ephemera_server: Valkey, ephemera_catalogues: Sequence[Catalogue]
) -> AsyncIterator[Store]:
    """A store on the embedded server, which is empty at first."""
    from ephemera.keyspace import connect

    async with connect(ephemera_server.url, *ephemera_catalogues) as store:
        await store.call("FLUSHALL")
        yield store
