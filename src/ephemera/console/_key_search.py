"""Search keys by text, in one keyspace or among undeclared keys, by a bounded number of SCANs at once.

    search = KeySearch(scope, "user 7")
    names = await search.more()      # at most `PAGE` names; again for the next ones, until `search.done`

A key that may be a secret is never found by its text, because that would confirm a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ephemera.console._connections import Service
from ephemera.keyspace import RESERVED, Keyspace, Role, Template
from ephemera.operations.formatting import format_key
from ephemera.operations.survey import PAGE_SIZE, SCAN_START
from ephemera.wire import Client

UNDECLARED = "Undeclared keys"
"""What keys are called that no keyspace declares."""
PAGE = 100
"""Keys that a search returns at once."""
_SCANS = 50  # of a thousand names each, for one page of results


@dataclass(frozen=True)
class KeyScope:
    """Where to look: a keyspace of a service, or undeclared keys on a server, all of them or of a shape."""

    service: Service
    role: Role
    keyspace: Keyspace[Any] | None
    others: tuple[Service, ...] = ()
    """Services whose keys may be on the same server, where they are undeclared for this one."""
    shape: Template | None = None
    """Of undeclared keys, only those of this pattern."""

    @property
    def name(self) -> str:
        """The pattern of the keys, or what they are."""
        return UNDECLARED if self._template is None else self._template.pattern

    @property
    def glob(self) -> str:
        """The glob that matches at least all keys of this scope."""
        return "*" if self._template is None else self._template.glob

    @property
    def _template(self) -> Template | None:
        return self.shape if self.keyspace is None else self.keyspace.template

    @property
    def client(self) -> Client:
        """The client of the server that has these keys."""
        return self.service.store.client(self.role)

    def has(self, key: bytes) -> bool:
        """Whether a key belongs here."""
        if self.keyspace is not None:
            return self.keyspace.parse(key) is not None
        if self.shape is not None and self.shape.parse(key) is None:
            return False
        catalogues = (RESERVED, *self.service.catalogues)
        return all(catalogue.classify(key) is None for catalogue in catalogues)

    def is_hidden(self, key: bytes) -> bool:
        """Whether the key itself may be a secret, so that neither it nor its value is shown."""
        shown = format_key(key, self.keyspace)
        if self.keyspace is None and _head(key.decode("utf-8", "replace")) in self._sensitive_heads:
            return True
        return not shown or (
            self.keyspace is not None
            and bool(self.keyspace.template.fields)
            and shown == self.keyspace.pattern
        )

    @cached_property
    def _sensitive_heads(self) -> set[str]:
        """What the keys of sensitive keyspaces begin with: undeclared ones like them may be secrets, too."""
        keyspaces = [each for service in (self.service, *self.others) for each in service.keyspaces]
        return {_head(each.template.literals[0]) for each in keyspaces if each.sensitive}


def _head(key: str) -> str:
    return key.partition(":")[0]


class KeySearch:
    """One search; each call of `more` continues it."""

    def __init__(self, scope: KeyScope, text: str) -> None:
        self.scope = scope
        self.done = False
        self.scanned = 0
        """Names that were looked at so far, about."""
        self._text = text.casefold()
        self._exact = text.encode("utf-8", "surrogatepass")
        self._node, self._cursor = 0, SCAN_START
        self._seen: set[bytes] = set()

    async def more(self) -> list[bytes]:
        """The next keys; fewer than `PAGE` when the search ends or takes too long."""
        found: list[bytes] = []
        if self._cursor == SCAN_START and not self._node and await self._has_exact():
            found.append(self._exact)
        for _ in range(_SCANS):
            if self.done or len(found) >= PAGE:
                break
            found += await self._page()
        self._seen.update(found)
        return found

    async def _has_exact(self) -> bool:
        """Whether the text is a whole key, which needs no scan to find."""
        if not self._exact or not self._fits(self._exact):
            return False
        # An ACL for consoles allows TYPE of any key, and EXISTS only of declared ones.
        return await self.scope.client.call("TYPE", self._exact) not in ("none", b"none")

    async def _page(self) -> list[bytes]:
        nodes = self.scope.client.nodes()
        node = nodes[min(self._node, len(nodes) - 1)]  # the cluster may have become smaller
        glob = self.scope.glob
        self._cursor, names = await node.call("SCAN", self._cursor, "MATCH", glob, "COUNT", PAGE_SIZE)
        self.scanned += PAGE_SIZE
        if self._cursor == SCAN_START:
            self._node += 1
            self.done = self._node >= len(nodes)
        new = dict.fromkeys(name for name in names if name not in self._seen and name != self._exact)
        return [name for name in new if self._fits(name)]

    def _fits(self, name: bytes) -> bool:
        if not self.scope.has(name):
            return False
        if not self._text:
            return True
        return self._text in name.decode("utf-8", "replace").casefold() and not self.scope.is_hidden(name)
