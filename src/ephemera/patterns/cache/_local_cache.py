"""The local cache (L1): entries kept in this process, within a budget of entries and bytes.

An entry is used without asking the server while it is trusted. Four things keep that honest. A slot is
reserved before the read that fills it, and an invalidation that arrives in between removes the slot. A
lost connection ends the trust in all entries. The wire pings an idle connection every second, so a dead one
is noticed. And no entry is trusted for longer than `max_age`, whatever invalidations did or did not arrive.

Eviction is S3-FIFO (Yang et al., SOSP 2023). New keys enter a small queue with a tenth of the budget; only
keys used again before they reach its end move to the main queue, so a scan passes through the small queue and
leaves the rest alone. Keys evicted from the small queue are remembered, and go to the main queue when they
return.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Literal, TypeVar

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import check_durations

V = TypeVar("V")

_OVERHEAD = 400  # bytes of the objects and table slots around an entry, about
_SMALL_SHARE = 10  # the small queue has this fraction (1/10) of the budget
_MAX_USES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCache:
    """The option `local=LocalCache(...)` of a cache: keep entries in this process, too.

    Redis announces which keys change (client tracking), so a local entry is dropped about one round trip
    after a change made by another process, and at once after a change made by this one.
    """

    max_entries: int = 10_000
    """Entries kept in each process."""
    max_bytes: int = 64 * 1024 * 1024
    """Bytes of stored entries kept in each process, with an estimate of the overhead."""
    max_age: timedelta = timedelta(seconds=30)
    """How long an entry is used without asking the server, even if no invalidation arrives."""
    when_down: Literal["serve", "load"] = "serve"
    """While Redis is down, whether an entry older than `max_age` is served, or loaded from the source."""
    values: Literal["copied", "frozen", "shared"] = "copied"
    """What callers get. `"copied"`: each its own copy, unless the type is immutable, which needs none.
    `"frozen"`: all the same value, of a type that must be immutable. `"shared"`: all the same value, which
    they promise not to change."""

    def __post_init__(self) -> None:
        check_durations("LocalCache", max_age=self.max_age)
        if self.when_down not in ("serve", "load"):
            raise InvalidDeclaration("LocalCache", f"when_down={self.when_down!r}", "use 'serve' or 'load'")
        if self.values not in ("copied", "frozen", "shared"):
            advice = "use 'copied', 'frozen' or 'shared'"
            raise InvalidDeclaration("LocalCache", f"values={self.values!r}", advice)
        if self.max_entries < 1 or self.max_bytes < 1 or self.max_age <= timedelta(0):
            raise InvalidDeclaration("LocalCache", f"{self} keeps nothing", "give positive numbers")


class LocalEntry(Generic[V]):
    """One entry as it was read; times are by `monotonic`."""

    __slots__ = (
        "copy", "cost", "expires_at", "fresh_until", "head", "retry_at", "size", "stale_until", "tags",
        "trusted_until", "uses", "value", "version",
    )  # fmt: skip

    def __init__(
        self, value: V, *, size: int, fresh_until: float, stale_until: float, expires_at: float,
        trusted_until: float = 0.0, cost: int = 0, version: str = "", tags: Collection[str] = (),
        head: bytes = b"", copy: Callable[[], V] | None = None,
    ) -> None:  # fmt: skip
        self.value = value  # callers get it itself only without `copy`
        self.copy = copy
        self.size = size + _OVERHEAD
        self.fresh_until = fresh_until
        self.stale_until = stale_until
        self.expires_at = expires_at  # when it reaches `max_age`
        self.trusted_until = trusted_until  # 0: ask the server first
        self.retry_at = 0.0  # no refresh before this, after one that failed
        self.cost = cost  # milliseconds that the load took
        self.version = version
        self.tags = tags
        self.head = head  # the first bytes of the stored entry, which contain its version
        self.uses = 0

    def read(self) -> V:
        """Return the value for a caller; `BoundCache` inlines it."""
        return self.value if self.copy is None else self.copy()


class LocalEntries(Generic[V]):
    """The local entries of one cache on one store, and the slots reserved for reads in progress."""

    def __init__(self, budget: LocalCache) -> None:
        self._budget = budget
        self._entries: dict[str, LocalEntry[V]] = {}
        self._small: OrderedDict[str, None] = OrderedDict()
        self._main: OrderedDict[str, None] = OrderedDict()
        self._evicted: OrderedDict[str, None] = OrderedDict()
        self._reserved: dict[str, object] = {}
        self._small_bytes = 0
        self.bytes = 0
        """Bytes used now."""
        self.evictions = 0
        """Entries dropped to stay within the budget; invalidated ones do not count."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> LocalEntry[V] | None:
        """Return the entry of a key, trusted or not."""
        entry = self._entries.get(key)
        if entry is not None and entry.uses < _MAX_USES:
            entry.uses += 1
        return entry

    def reserve(self, key: str) -> object:
        """Reserve a slot for an entry that is about to be read."""
        return self._reserved.setdefault(key, object())

    def release(self, key: str, slot: object) -> bool:
        """Give a slot back; False when the key was invalidated since it was reserved."""
        if self._reserved.get(key) is not slot:
            return False
        del self._reserved[key]
        return True

    def put(self, key: str, entry: LocalEntry[V]) -> None:
        """Store an entry in place of any other, and evict others as the budget demands."""
        known = key in self._main or key in self._evicted
        before = self._entries.get(key)
        if before is not None:
            entry.uses = before.uses
        self.drop(key)
        if entry.size > self._budget.max_bytes // _SMALL_SHARE:
            return
        self._entries[key] = entry
        self.bytes += entry.size
        if known:
            self._evicted.pop(key, None)
            self._main[key] = None
        else:
            self._small[key] = None
            self._small_bytes += entry.size
        while len(self._entries) > self._budget.max_entries or self.bytes > self._budget.max_bytes:
            self._evict()

    def drop(self, key: str) -> None:
        """Remove an invalidated key, and the slot of a read in progress."""
        self._reserved.pop(key, None)
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.bytes -= entry.size
        if self._main.pop(key, self) is self:
            del self._small[key]
            self._small_bytes -= entry.size

    def drop_tagged(self, tag: str) -> None:
        """Remove all entries with a tag, and the slots of all reads in progress."""
        self._reserved.clear()
        for key in [key for key, entry in self._entries.items() if tag in entry.tags]:
            self.drop(key)

    def distrust(self) -> None:
        """Trust no entry before the server has confirmed it: anything may have changed."""
        self._reserved.clear()
        for entry in self._entries.values():
            entry.trusted_until = 0.0

    def _evict(self) -> None:
        budget = self._budget
        small_is_full = (
            len(self._small) * _SMALL_SHARE >= budget.max_entries
            or self._small_bytes * _SMALL_SHARE >= budget.max_bytes
        )
        if self._small and (small_is_full or not self._main):
            self._evict_small()
        else:
            self._evict_main()

    def _evict_small(self) -> None:
        key, _ = self._small.popitem(last=False)
        entry = self._entries[key]
        self._small_bytes -= entry.size
        if entry.uses > 1:
            entry.uses = 0
            self._main[key] = None
            return
        self._remove(key, entry)
        self._evicted[key] = None
        if len(self._evicted) > self._budget.max_entries:
            self._evicted.popitem(last=False)

    def _evict_main(self) -> None:
        key, _ = self._main.popitem(last=False)
        entry = self._entries[key]
        if entry.uses:
            entry.uses -= 1
            self._main[key] = None
        else:
            self._remove(key, entry)

    def _remove(self, key: str, entry: LocalEntry[V]) -> None:
        self.evictions += 1
        del self._entries[key]
        self.bytes -= entry.size
