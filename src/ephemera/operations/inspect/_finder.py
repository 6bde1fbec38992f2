"""The keys of one space on a server, found bit by bit: what a page that is looked at again and again needs.

A look costs at most a hundred SCANs of a thousand names each, and a fifth of that once a round is complete,
so a server of any size answers it at once; the next look goes on where this one stopped. What is known grows
from look to look, and what a whole round did not meet again is forgotten. A space without fields is one key,
and nothing is searched for.
"""

from __future__ import annotations

from typing import Any

from ephemera.keyspace import Keyspace
from ephemera.operations.inspect._cursors import BEGINNING
from ephemera.wire import Client

_PAGES = 100  # SCANs that one look takes at most, in the first round
_LATER_PAGES = 20  # and in those after it, which only keep up
_PAGE = 1000  # names that one SCAN looks at


class Finder:
    """At most `most` keys of a space, by looking again and again; None: all there are."""

    def __init__(self, client: Client, space: Keyspace[Any], most: int | None = 200) -> None:
        self.complete = False
        """Whether a round has come to its end: what is there all the time is known by then."""
        self.more = False
        """Whether there are more keys than `most`."""
        self._client = client
        self._space = space
        self._most = most
        self._known: set[str] = set()
        self._seen: set[str] = set()
        self._node, self._cursor = 0, BEGINNING

    async def look(self, pages: int | None = None) -> list[str]:
        """Go on searching, and all that is known by now, in order."""
        template = self._space.template
        if not template.fields:
            self.complete = True
            return [template.render({})]
        for _ in range(pages or (_LATER_PAGES if self.complete else _PAGES)):
            if await self._page():
                break
        return sorted(self._known | self._seen)[: self._most]

    async def all(self) -> list[str]:
        """Every key that is there, however long that takes."""
        found = await self.look()
        while not self.complete:
            found = await self.look()
        return found

    async def _page(self) -> bool:
        """Take a page; whether that ends the round."""
        nodes = self._client.nodes()
        node = nodes[min(self._node, len(nodes) - 1)]  # the cluster may have become smaller
        words = ("MATCH", self._space.template.glob, "TYPE", self._space.redis_type, "COUNT", _PAGE)
        self._cursor, page = await node.call("SCAN", self._cursor, *words)
        self._seen.update(name.decode() for name in page if self._space.parse(name) is not None)
        full = self._most is not None and len(self._seen) >= self._most
        if self._cursor == BEGINNING:
            self._node += 1
        if not full and self._node < len(nodes):
            return False
        self.more = full
        self.complete = True
        self._known, self._seen = self._seen, set()
        self._node, self._cursor = 0, BEGINNING
        return True
