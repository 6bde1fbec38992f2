"""LangChain's key-value store of bytes, for `CacheBackedEmbeddings`, document stores and the like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any, cast

from langchain_core.stores import BaseStore

from ephemera.adapters._expiring_index import ExpiringIndex
from ephemera.adapters._store_access import AsyncAccess, BlockingAccess, StoreAccess
from ephemera.blocking import BlockingStore
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Role, Store, check_declaration


class ByteValues:
    """Bytes by key: `store[VALUES]` is a LangChain `ByteStore`.

    Args:
        catalogue: Where the keys are declared.
        pattern: The key pattern of a value; its one field is the key.
        lifetime: How long a value is kept.
        role: The server's role; `queue` for values that must not be evicted.
        sensitive: Whether consoles and logs hide values.
        purpose: What the values are for, for the documentation of the catalogue.
        if_lost: What is lost with a value, for the documentation of the catalogue.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        *,
        lifetime: Fixed,
        role: Role = "cache",
        sensitive: bool = True,
        purpose: str,
        if_lost: str = "it is computed again",
    ) -> None:
        check_declaration(catalogue, pattern)
        if not isinstance(cast("Any", lifetime), Fixed):
            raise InvalidDeclaration(
                pattern, f"values cannot have the lifetime {lifetime}", "use a fixed one, as in fixed(days=7)"
            )
        self.keyspace = catalogue.value(
            pattern,
            bytes,
            lifetime=lifetime,
            role=role,
            sensitive=sensitive,
            purpose=purpose,
            if_lost=if_lost,
        )
        fields = self.keyspace.template.fields
        if len(fields) != 1:
            raise InvalidDeclaration(pattern, "it needs one field, the key", "write it as 'values:{key}'")
        self._field = fields[0]
        self.index = ExpiringIndex(
            catalogue,
            f"keys:{pattern.replace('{', '').replace('}', '')}",
            lifetime=lifetime,
            role=role,
            purpose="The keys of the values that exist, for yield_keys()",
            if_lost="yield_keys() lists a key only when it has been written again",
        )

    def bind(self, store: Store) -> BoundByteValues:
        """The values of a store."""
        store[self.keyspace]  # refuses a store without the catalogue
        return BoundByteValues(self, AsyncAccess(store))

    def bind_sync(self, store: BlockingStore) -> BoundByteValues:
        """The values of a synchronous store, for any thread or event loop, and after a fork."""
        return BoundByteValues(self, BlockingAccess(store))

    def __repr__(self) -> str:
        return f"<ByteValues {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


class BoundByteValues(BaseStore[str, bytes]):
    """The values of one store: `store[VALUES]`."""

    def __init__(self, declared: ByteValues, access: StoreAccess) -> None:
        self._declared = declared
        self._access = access

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of these keys; None for one that does not exist."""
        return self._access.wait(self._get(keys))

    async def amget(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of these keys; None for one that does not exist."""
        return await self._access.run(self._get(keys))

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """Store values, in one round trip."""
        self._access.wait(self._put(key_value_pairs))

    async def amset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """Store values, in one round trip."""
        await self._access.run(self._put(key_value_pairs))

    def mdelete(self, keys: Sequence[str]) -> None:
        """Delete the values of these keys."""
        self._access.wait(self._delete(keys))

    async def amdelete(self, keys: Sequence[str]) -> None:
        """Delete the values of these keys."""
        await self._access.run(self._delete(keys))

    def yield_keys(self, *, prefix: str | None = None) -> Generator[str, None, None]:
        """The keys that exist, in no order; those that begin with `prefix`, if it is given."""
        pages = self._keys(prefix or "")
        while (page := self._access.wait(_next(pages))) is not None:
            yield from page

    async def ayield_keys(self, *, prefix: str | None = None) -> AsyncGenerator[str, None]:
        """The keys that exist, in no order; those that begin with `prefix`, if it is given."""
        pages = self._keys(prefix or "")
        while (page := await self._access.run(_next(pages))) is not None:
            for key in page:
                yield key

    async def _get(self, keys: Sequence[str]) -> list[bytes | None]:
        return await self._access.store[self._declared.keyspace].get_many(self._fields(keys))

    async def _put(self, pairs: Sequence[tuple[str, bytes]]) -> None:
        if not pairs:
            return
        store, keys = self._access.store, [key for key, _ in pairs]
        items = zip(self._fields(keys), [value for _, value in pairs], strict=True)
        await asyncio.gather(
            self._declared.index.add(store, keys), store[self._declared.keyspace].put_many(items)
        )

    async def _delete(self, keys: Sequence[str]) -> None:
        await self._access.store[self._declared.keyspace].delete_many(self._fields(keys))

    async def _keys(self, prefix: str) -> AsyncGenerator[list[str], None]:
        """Pages of the keys that exist."""
        store, seen = self._access.store, set[str]()
        values = store[self._declared.keyspace]
        async for page in self._declared.index.names(store):
            new = [key for key in page if key.startswith(prefix) and key not in seen]
            seen.update(new)
            exist = await asyncio.gather(*(values.exists(**fields) for fields in self._fields(new)))
            yield [key for key, there in zip(new, exist, strict=True) if there]

    def _fields(self, keys: Sequence[str]) -> list[dict[str, str]]:
        return [{self._declared._field: key} for key in keys]


async def _next(pages: AsyncGenerator[list[str], None]) -> list[str] | None:
    return await anext(pages, None)
