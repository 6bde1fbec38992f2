"""Find the keys of one keyspace incrementally, for a page that is refreshed again and again.

A search costs at limit a hundred SCANs of a thousand names each, and a fifth of that once a full pass is
complete, so it is quick on a server of any size; the next search continues where this one stopped. Results
accumulate, and keys that a full pass did not see again are dropped. A keyspace without fields is one key, and
needs no search.
"""

from __future__ import annotations

from typing import Any

from ephemera.keyspace import Keyspace
from ephemera.operations.survey import PAGE_SIZE, SCAN_START
from ephemera.wire import Client

_PAGES = 100  # SCANs of one search at limit, in the first pass
_LATER_PAGES = 20  # and in later passes, which only refresh


class KeyFinder:
    """Finds up to `limit` keys of a keyspace by repeated searches; None: all keys."""

    def __init__(self, client: Client, keyspace: Keyspace[Any], limit: int | None = 200) -> None:
        self.complete = False
        """Whether a full pass has ended: every key that existed all the time is known by then."""
        self.truncated = False
        """Whether there are more keys than `limit`."""
        self._client = client
        self._keyspace = keyspace
        self._limit = limit
        self._known: set[str] = set()
        self._seen: set[str] = set()
        self._node, self._cursor = 0, SCAN_START

    async def search(self, pages: int | None = None) -> list[str]:
        """Continue the search, and return all keys known by now, sorted."""
        template = self._keyspace.template
        if not template.fields:
            self.complete = True
            return [template.render({})]
        for _ in range(pages or (_LATER_PAGES if self.complete else _PAGES)):
            if await self._page():
                break
        return sorted(self._known | self._seen)[: self._limit]

    async def find_all(self) -> list[str]:
        """Every key, however long the search takes."""
        found = await self.search()
        while not self.complete:
            found = await self.search()
        return found

    async def _page(self) -> bool:
        """Read a page; whether that ends the pass."""
        nodes = self._client.nodes()
        node = nodes[min(self._node, len(nodes) - 1)]  # the cluster may have become smaller
        options = (
            "MATCH",
            self._keyspace.template.glob,
            "TYPE",
            self._keyspace.redis_type,
            "COUNT",
            PAGE_SIZE,
        )
        self._cursor, page = await node.call("SCAN", self._cursor, *options)
        self._seen.update(name.decode() for name in page if self._keyspace.parse(name) is not None)
        full = self._limit is not None and len(self._seen) >= self._limit
        if self._cursor == SCAN_START:
            self._node += 1
        if not full and self._node < len(nodes):
            return False
        self.truncated = full
        self.complete = True
        self._known, self._seen = self._seen, set()
        self._node, self._cursor = 0, SCAN_START
        return True
