"""The standard tests that LangChain publishes for caches and key-value stores, for ours."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from langchain_core.caches import BaseCache
from langchain_core.stores import BaseStore
from langchain_tests.integration_tests import (
    AsyncCacheTestSuite,
    BaseStoreAsyncTests,
    BaseStoreSyncTests,
    SyncCacheTestSuite,
)

from ephemera import Catalogue, Lexical, SemanticBackend, connect, fixed, sync
from ephemera.adapters.langchain import ByteValues, LLMCache

URL = os.environ["CERTIFIED_URL"]
CATALOGUE = Catalogue("langchain-contract")
ANSWERS = LLMCache(CATALOGUE, "answer:{hash}", lifetime=fixed(hours=1))
SIMILAR = LLMCache(CATALOGUE, "similar:{hash}", lifetime=fixed(hours=1))
VALUES = ByteValues(CATALOGUE, "value:{key}", lifetime=fixed(hours=1), purpose="Values")


@pytest.fixture
def sync_store() -> Iterator[sync.SyncStore]:
    """A synchronous store on an empty server."""
    backend = SemanticBackend(embedder=Lexical())
    with sync.connect(URL, CATALOGUE, resources={SIMILAR: backend}) as store:
        store.call("FLUSHALL")
        yield store


class _Values:
    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        """Values of any bytes."""
        return b"foo", b"\x00\xff", b""


class TestSyncCache(SyncCacheTestSuite):
    @pytest.fixture(params=[ANSWERS, SIMILAR], ids=["exact", "semantic"])
    def cache(self, request: pytest.FixtureRequest, sync_store: sync.SyncStore) -> BaseCache:
        """The cache of a synchronous store."""
        cache: BaseCache = sync_store[request.param]
        return cache


class TestAsyncCache(AsyncCacheTestSuite):
    @pytest.fixture(params=[ANSWERS, SIMILAR], ids=["exact", "semantic"])
    async def cache(self, request: pytest.FixtureRequest) -> AsyncIterator[BaseCache]:
        """The cache of an async store."""
        backend = SemanticBackend(embedder=Lexical())
        async with connect(URL, CATALOGUE, resources={SIMILAR: backend}) as store:
            await store.call("FLUSHALL")
            yield store[request.param]


class TestAsyncCacheOfSyncStore(AsyncCacheTestSuite):
    @pytest.fixture
    async def cache(self, sync_store: sync.SyncStore) -> BaseCache:
        """The cache of a synchronous store, used by coroutines."""
        return sync_store[ANSWERS]


class TestSyncByteStore(_Values, BaseStoreSyncTests[bytes]):
    @pytest.fixture
    def kv_store(self, sync_store: sync.SyncStore) -> BaseStore[str, bytes]:
        """The values of a synchronous store."""
        return sync_store[VALUES]


class TestAsyncByteStore(_Values, BaseStoreAsyncTests[bytes]):
    @pytest.fixture
    async def kv_store(self) -> AsyncIterator[BaseStore[str, bytes]]:
        """The values of an async store."""
        async with connect(URL, CATALOGUE) as store:
            await store.call("FLUSHALL")
            yield store[VALUES]
