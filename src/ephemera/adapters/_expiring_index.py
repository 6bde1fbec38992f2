"""Indexes of what exists under other keys, since a service may not SCAN a server's keys.

An index is a sorted set of names by expiry. A name is added with each write of what it names, in the same
round trip, and leaves the index when its lifetime has passed: never earlier, so that no deletion can race
with a write. So an index lists at least what exists, unless it was evicted, and its readers check each name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from ephemera.keyspace import Catalogue, FieldValue, Fixed, Role, Store
from ephemera.wire import Script

_ADD = Script.load("ephemera.adapters", "index_add")
_PAGE = 500  # names that a reader asks for at once
_START = b"0"  # the cursor of a scan, before its first page and after its last


class ExpiringIndex:
    """Indexes of one pattern, with a lifetime for their entries."""

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        *,
        lifetime: Fixed,
        role: Role,
        purpose: str,
        if_lost: str,
    ) -> None:
        self._lifetime = lifetime.milliseconds
        self.keyspace = catalogue.sorted_set(
            pattern, str, lifetime=lifetime, role=role, purpose=purpose, if_lost=if_lost, sensitive=True
        )

    async def add(self, store: Store, names: Iterable[str], /, **fields: FieldValue) -> None:
        """Add names to an index, or renew them."""
        client, key = store.client(self.keyspace.role), self.keyspace.key(**fields)
        with store[self.keyspace].stats.counting_errors:
            await client.run(_ADD, (key,), (self._lifetime, *names))

    async def names(self, store: Store, /, **fields: FieldValue) -> AsyncIterator[list[str]]:
        """All names of an index, in pages; a page may repeat what an earlier one had."""
        client, key = store.client(self.keyspace.role), self.keyspace.key(**fields)
        cursor = _START
        while True:
            with store[self.keyspace].stats.counting_errors:
                cursor, page = await client.call("ZSCAN", key, cursor, "COUNT", _PAGE)
            yield [name for name in map(_text, page[::2]) if name is not None]
            if cursor == _START:
                return


def _text(name: Any) -> str | None:
    try:
        return str(name, "utf-8")
    except UnicodeDecodeError:  # nothing that `add` has written
        return None
