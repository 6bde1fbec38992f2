"""Local copies of cache entries: in a budget of entries and bytes, trusted while they are known good.

`Local(entries=..., bytes=..., max_age=...)` is the option of a `Cache`; `Copies` is what a store then has.

Keys: none of its own. The server tells which of the cache's keys change (RESP3 client tracking, broadcast for
the pattern's literal start), and four things together keep a copy honest: a place is reserved before the
read that fills it, and a change in between takes the place away; a lost connection ends the trust in all
copies; the wire pings an idle connection each second, so a dead one is lost; and no copy is trusted for
longer than `max_age`, whatever was or was not told. Where the server refuses tracking, no copy is trusted:
each read compares the head of the stored entry, which names its version, and saves the payload alone.
Atomic: everything here happens between two awaits. Copies are shared objects: do not change them.
Down or hung: copies are still there, and `cache` serves them, fresh or stale; with `when_down="load"` none
that is older than `max_age`, so that whoever waits for that long after a change knows that nobody has the old
value, not even a process that was cut off from the server while others were not. Evicting: an evicted key is
told like any change.

S3-FIFO (Yang et al., SOSP 2023): new keys enter a small queue of a tenth of the budget, and only those used
again before its end move to the main one, so a scan passes through the tenth and leaves the rest alone.
Keys that were dropped from the small queue are remembered; who comes back goes to the main queue at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Literal, TypeVar

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import check_durations

V = TypeVar("V")

_OVERHEAD = 400  # bytes of the objects and table places around a copy, about
_SMALL = 10  # the small queue is this part of the budget
_MOST_USES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """The budget of a cache's copies in each process, and how long one is trusted at most."""

    entries: int = 10_000
    bytes: int = 64 * 1024 * 1024
    max_age: timedelta = timedelta(seconds=30)
    when_down: Literal["serve", "load"] = "serve"
    """What comes of a copy older than `max_age` while Redis is away: it is served, or loaded anew instead."""

    def __post_init__(self) -> None:
        check_durations("Local", max_age=self.max_age)
        if self.when_down not in ("serve", "load"):
            raise InvalidDeclaration("Local", f"when_down={self.when_down!r}", "use 'serve' or 'load'")
        if self.entries < 1 or self.bytes < 1 or self.max_age <= timedelta(0):
            raise InvalidDeclaration("Local", f"{self} keeps nothing", "give positive numbers")


class Copy(Generic[V]):
    """One entry as it was read; moments are by `monotonic`."""

    __slots__ = (
        "cost", "fresh_until", "head", "old_at", "retry_at", "size", "stale_until", "tags", "trusted_until",
        "uses", "value", "version",
    )  # fmt: skip

    def __init__(
        self, value: V, *, size: int, fresh_until: float, stale_until: float, old_at: float,
        trusted_until: float = 0.0, cost: int = 0, version: str = "", tags: Collection[str] = (),
        head: bytes = b"",
    ) -> None:  # fmt: skip
        self.value = value
        self.size = size + _OVERHEAD
        self.fresh_until = fresh_until
        self.stale_until = stale_until
        self.old_at = old_at  # when it reaches its maximum age
        self.trusted_until = trusted_until  # 0: ask the server first
        self.retry_at = 0.0  # no refresh before this, after one that failed
        self.cost = cost  # milliseconds that the load took
        self.version = version
        self.tags = tags
        self.head = head  # the first bytes of the stored entry, which name its version
        self.uses = 0


class Copies(Generic[V]):
    """The copies of one cache in one store, and the places reserved for those on their way."""

    def __init__(self, budget: Local) -> None:
        self._budget = budget
        self._copies: dict[str, Copy[V]] = {}
        self._small: OrderedDict[str, None] = OrderedDict()
        self._main: OrderedDict[str, None] = OrderedDict()
        self._remembered: OrderedDict[str, None] = OrderedDict()
        self._reserved: dict[str, object] = {}
        self.bytes = 0
        self.evictions = 0
        """Copies dropped for want of room, not those that changed."""
        self._small_bytes = 0

    def __len__(self) -> int:
        return len(self._copies)

    def get(self, key: str) -> Copy[V] | None:
        """The copy of a key, trusted or not."""
        copy = self._copies.get(key)
        if copy is not None and copy.uses < _MOST_USES:
            copy.uses += 1
        return copy

    def reserve(self, key: str) -> object:
        """A place for a copy that is about to be read."""
        return self._reserved.setdefault(key, object())

    def release(self, key: str, place: object) -> bool:
        """Give a place back; False when the key has changed since it was reserved."""
        if self._reserved.get(key) is not place:
            return False
        del self._reserved[key]
        return True

    def keep(self, key: str, copy: Copy[V]) -> None:
        """Keep a copy in place of any other, and drop others as the budget demands."""
        known = key in self._main or key in self._remembered
        before = self._copies.get(key)
        if before is not None:
            copy.uses = before.uses
        self.drop(key)
        if copy.size > self._budget.bytes // _SMALL:
            return
        self._copies[key] = copy
        self.bytes += copy.size
        if known:
            self._remembered.pop(key, None)
            self._main[key] = None
        else:
            self._small[key] = None
            self._small_bytes += copy.size
        while len(self._copies) > self._budget.entries or self.bytes > self._budget.bytes:
            self._evict()

    def drop(self, key: str) -> None:
        """Forget a key that has changed, and the place of one on its way."""
        self._reserved.pop(key, None)
        copy = self._copies.pop(key, None)
        if copy is None:
            return
        self.bytes -= copy.size
        if self._main.pop(key, self) is self:
            del self._small[key]
            self._small_bytes -= copy.size

    def drop_tagged(self, tag: str) -> None:
        """Forget all copies with a tag, and the places of all on their way."""
        self._reserved.clear()
        for key in [key for key, copy in self._copies.items() if tag in copy.tags]:
            self.drop(key)

    def distrust(self) -> None:
        """Anything may have changed: no copy is used before the server was asked, unless it is away."""
        self._reserved.clear()
        for copy in self._copies.values():
            copy.trusted_until = 0.0

    def _evict(self) -> None:
        budget = self._budget
        crowded = len(self._small) * _SMALL >= budget.entries or self._small_bytes * _SMALL >= budget.bytes
        if self._small and (crowded or not self._main):
            self._evict_small()
        else:
            self._evict_main()

    def _evict_small(self) -> None:
        key, _ = self._small.popitem(last=False)
        copy = self._copies[key]
        self._small_bytes -= copy.size
        if copy.uses > 1:
            copy.uses = 0
            self._main[key] = None
            return
        self._forget(key, copy)
        self._remembered[key] = None
        if len(self._remembered) > self._budget.entries:
            self._remembered.popitem(last=False)

    def _evict_main(self) -> None:
        key, _ = self._main.popitem(last=False)
        copy = self._copies[key]
        if copy.uses:
            copy.uses -= 1
            self._main[key] = None
        else:
            self._forget(key, copy)

    def _forget(self, key: str, copy: Copy[V]) -> None:
        self.evictions += 1
        del self._copies[key]
        self.bytes -= copy.size
